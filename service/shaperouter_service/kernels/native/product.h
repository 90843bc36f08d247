// The operands of a product of a few rows and packed weights.

#ifndef SHAPEROUTER_KERNELS_PRODUCT_H_
#define SHAPEROUTER_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Columns of a panel: 16 floats of one input fill a cache line.
constexpr size_t kPanelColumns = 16;
// Inputs of one byte product: a panel's bytes of four inputs fill a cache line.
constexpr size_t kQuad = 4;
// Inputs of a row that share a factor when the row is rounded to bytes.
constexpr size_t kGroup = 128;

enum class WeightType { kFloat32, kBFloat16, kInt8 };

// Applied to a sum x. Relu: max(x, 0). Gelu: x times the normal distribution function, exactly or
// by tanh (Hendrycks and Gimpel 2016). Silu: x times the logistic function of x.
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

// out = activation(scale * (x * weights) + bias), with a scale and a bias for each column.
//
// With int8 weights, x is rounded to int8, too, from -127 to 127: each group of a row has the
// factor that makes its largest number 127. Products and sums of bytes are exact; the sums of the
// groups are scaled and added up in floats.
//
// Every sum is computed in the order of the inputs, whatever the number of rows, so a row's results
// depend neither on the other rows nor on how the work was split.
struct Product {
  size_t rows;     // M
  size_t inputs;   // I
  size_t columns;  // O

  const float* x;  // [M, I]
  // Panels, the last one padded with zeros: [ceil(O / 16), I, 16]; for int8, from -127 to 127,
  // [ceil(O / 16), ceil(I / 4), 16, 4], with the inputs padded with zeros, too.
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
constexpr size_t QuadCount(size_t inputs) { return (inputs + kQuad - 1) / kQuad; }
constexpr size_t GroupCount(size_t inputs) { return (inputs + kGroup - 1) / kGroup; }

// Number of 4-byte words of an arranged row.
constexpr size_t RowSize(WeightType type, size_t inputs) {
  return type == WeightType::kInt8 ? QuadCount(inputs) + 2 * GroupCount(inputs) : inputs;
}

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_PRODUCT_H_
