// The operands of a product of a few rows and packed weights.

#ifndef SHAPEROUTER_KERNELS_PRODUCT_H_
#define SHAPEROUTER_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Columns of a panel: 16 floats of one input fill a cache line.
constexpr size_t kPanelColumns = 16;
// Inputs of one product of bfloat16: a panel's numbers of two inputs fill a cache line.
constexpr size_t kPair = 2;
// Inputs of one byte product: a panel's bytes of four inputs fill a cache line.
constexpr size_t kQuad = 4;
// Inputs of a row that share a factor when the row is rounded to bytes.
constexpr size_t kGroup = 128;
// Inputs of a column that share a scale if weights have four bits.
constexpr size_t kScaled = 32;
// Such weights of a panel are in blocks of this many inputs, which are nine cache lines. One has the
// scales, bfloat16 [2, 16], and the others have two quads each: one in the low four bits of the
// bytes, the next in the high ones. Weights are stored as numbers from 0 to 15, which are 8 too
// large.
constexpr size_t kBlock = 64;
constexpr size_t kBlockBytes = 9 * 64;
constexpr int32_t kNibbleOffset = 8;

enum class WeightType { kFloat32, kBFloat16, kInt8, kInt4 };

// Applied to a sum x. Relu: max(x, 0). Gelu: x times the normal distribution function, exactly or
// by tanh (Hendrycks and Gimpel 2016). Silu: x times the logistic function of x.
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

// out = activation(scale * (x * weights) + bias), with a scale and a bias for each column.
//
// With bfloat16 weights, x is rounded to bfloat16, too, to the nearest, ties to even. Products are
// exact in floats: they have 16 significant bits. Of each two inputs, the second is added first, as
// processors with such products do. So all instruction sets but tiles, which have an order of their
// own (tiles.inc), give the same bits, unless a number is below the smallest normal one: some take
// it for zero.
//
// With int8 weights, x is rounded to int8, too, from -127 to 127: each group of a row has the
// factor that makes its largest number 127. Products and sums of bytes are exact; the sums of the
// groups are scaled and added up in floats.
//
// With int4 weights, from -8 to 7, x is rounded in the same way. Each 32 inputs of a column have a
// scale of their own. It has 8 significant bits, so that the product with the exact sum of these
// inputs, which has 15, is exact, too. So the sums of each 128 inputs have the same bits on every
// processor, and so have the whole sums, as they are scaled and added with two roundings.
//
// Every sum is computed in the order of the inputs, of their pairs or, by tiles, of groups of 32,
// whatever the number of rows, so a row's results depend neither on the other rows nor on how the
// work was split.
struct Product {
  size_t rows;     // M
  size_t inputs;   // I
  size_t columns;  // O

  const float* x;  // [M, I]
  // Panels, the last one padded with zeros: [ceil(O / 16), I, 16]; for bfloat16,
  // [ceil(O / 16), ceil(I / 2), 16, 2], with the inputs padded with zeros, too; for int8, from -127
  // to 127, [ceil(O / 16), ceil(I / 4), 16, 4], and for int4, blocks,
  // [ceil(O / 16), ceil(I / 64), kBlockBytes], padded likewise.
  const void* weights;
  WeightType type;
  const float* scales;  // [O], or null
  const float* bias;    // [O], or null
  Activation activation;

  float* arranged;  // [M, RowSize()], scratch memory
  float* out;       // [M, O]
};

constexpr size_t PanelCount(size_t columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns;
}
constexpr size_t PairCount(size_t inputs) { return (inputs + kPair - 1) / kPair; }
constexpr size_t QuadCount(size_t inputs) { return (inputs + kQuad - 1) / kQuad; }
constexpr size_t GroupCount(size_t inputs) { return (inputs + kGroup - 1) / kGroup; }
constexpr size_t BlockCount(size_t inputs) { return (inputs + kBlock - 1) / kBlock; }

// Whether rows are rounded to numbers of fewer bits.
constexpr bool IsRounded(WeightType type) { return type != WeightType::kFloat32; }

// Bytes of a panel.
constexpr size_t PanelSize(WeightType type, size_t inputs) {
  switch (type) {
    case WeightType::kFloat32:
      return inputs * kPanelColumns * 4;
    case WeightType::kBFloat16:
      return PairCount(inputs) * kPair * kPanelColumns * 2;
    case WeightType::kInt8:
      return QuadCount(inputs) * kQuad * kPanelColumns;
    case WeightType::kInt4:
      return BlockCount(inputs) * kBlockBytes;
  }
  return 0;
}

// Number of 4-byte words of an arranged row: the most that any instruction set needs.
constexpr size_t RowSize(WeightType type, size_t inputs) {
  switch (type) {
    case WeightType::kFloat32:
      return inputs;
    case WeightType::kBFloat16:
      return PairCount(inputs) * kPair;
    case WeightType::kInt8:
      return QuadCount(inputs) + 2 * GroupCount(inputs);
    case WeightType::kInt4:
      return BlockCount(inputs) * (kBlock / kQuad + kBlock / kScaled) + GroupCount(inputs);
  }
  return 0;
}

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_PRODUCT_H_
