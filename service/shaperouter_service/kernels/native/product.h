// The product of a few rows and packed weights: what it is made of.

#ifndef SHAPEROUTER_KERNELS_PRODUCT_H_
#define SHAPEROUTER_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Columns of a panel: of one input, a cache line of floats.
constexpr size_t kPanelColumns = 16;

enum class WeightType { kFloat32, kBFloat16, kInt8 };

// out = x * weights, times the scale of each column, plus its bias.
//
// Every sum is made in the order of the inputs, one after the other, whatever the number of rows:
// so a row's results depend neither on the other rows nor on how the work was split.
struct Product {
  size_t rows;     // M
  size_t inputs;   // I
  size_t columns;  // O

  const float* x;       // [M, I]
  const void* weights;  // [ceil(O / 16), I, 16]: panels, the last one filled up with zeros
  WeightType type;
  const float* scales;  // [O], or null
  const float* bias;    // [O], or null

  float* arranged;  // [M, I], to work in
  float* out;       // [M, O]
};

inline size_t PanelCount(size_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_PRODUCT_H_
