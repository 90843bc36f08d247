// The product of a few rows and packed weights: what it is made of, and the code that computes it,
// once for each instruction set.

#ifndef SHAPEROUTER_KERNELS_PRODUCT_H_
#define SHAPEROUTER_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Columns of a panel: of one input, a cache line of floats.
constexpr size_t kPanelColumns = 16;

// Of everything that graphs and weights in memory rely on: names, operands and layouts.
constexpr int kVersion = 1;

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

// What one instruction set computes. Functions of one product may run side by side if their ranges
// are apart; all blocks are to be arranged before the first panel is multiplied.
struct Kernels {
  const char* name;
  size_t block_rows;  // Most rows of a block.

  // Turns blocks of rows, [first, last), into the order in which `multiply` reads them.
  void (*arrange)(const Product&, size_t first, size_t last);

  // Computes the columns of panels [first, last).
  void (*multiply)(const Product&, size_t first, size_t last);
};

inline size_t PanelCount(size_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_PRODUCT_H_
