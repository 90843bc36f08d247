// The product of a few rows and packed weights: what it is made of.

#ifndef SHAPEROUTER_KERNELS_PRODUCT_H_
#define SHAPEROUTER_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Columns of a panel: of one input, a cache line of floats.
constexpr size_t kPanelColumns = 16;
// Inputs that bytes are multiplied by at a time: of a panel, a cache line of bytes.
constexpr size_t kQuad = 4;
// Inputs of a row that have a factor in common where it is rounded to bytes.
constexpr size_t kGroup = 128;

enum class WeightType { kFloat32, kBFloat16, kInt8 };

// Of a sum x: max(x, 0); x times the share of the normal distribution below x, exactly and by
// tanh (Hendrycks and Gimpel 2016); x times the logistic function of x.
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu };

// out = activation(x * weights, times the scale of each column, plus its bias).
//
// With weights of a byte, x is rounded to bytes, too, -127 to 127: each group of a row has the
// factor that makes its largest number 127. Products and sums of bytes are exact; those of groups
// are scaled and added up in floats.
//
// Every sum is made in the order of the inputs, one after the other, whatever the number of rows:
// so a row's results depend neither on the other rows nor on how the work was split.
struct Product {
  size_t rows;     // M
  size_t inputs;   // I
  size_t columns;  // O

  const float* x;  // [M, I]
  // Panels, the last one filled up with zeros: [ceil(O / 16), I, 16]; of bytes, -127 to 127,
  // [ceil(O / 16), ceil(I / 4), 16, 4], zeros filling up the inputs, too.
  const void* weights;
  WeightType type;
  const float* scales;  // [O], or null
  const float* bias;    // [O], or null
  Activation activation;

  float* arranged;  // [M, RowSize()], to work in
  float* out;       // [M, O]
};

constexpr size_t PanelCount(size_t columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns;
}
constexpr size_t QuadCount(size_t inputs) { return (inputs + kQuad - 1) / kQuad; }
constexpr size_t GroupCount(size_t inputs) { return (inputs + kGroup - 1) / kGroup; }

// Words of four bytes that a row takes when it is arranged.
constexpr size_t RowSize(WeightType type, size_t inputs) {
  return type == WeightType::kInt8 ? QuadCount(inputs) + 2 * GroupCount(inputs) : inputs;
}

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_PRODUCT_H_
