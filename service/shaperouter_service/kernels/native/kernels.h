// The code that computes products and attention, once for each instruction set.

#ifndef SHAPEROUTER_KERNELS_KERNELS_H_
#define SHAPEROUTER_KERNELS_KERNELS_H_

#include <cstddef>
#include <utility>  // For kernels.inc, which includes nothing itself: it is another processor's code.

#include "attention.h"
#include "product.h"

namespace shaperouter {

// Of everything that graphs and weights in memory rely on: names, operands and layouts.
constexpr int kVersion = 5;

// What one instruction set computes. Functions of one product, or of one attention, may run side by
// side if their ranges are apart; all blocks are arranged before the first panel is multiplied.
struct Kernels {
  const char* name;
  size_t block_rows;  // Most rows of a block.

  // Turns blocks of rows, [first, last), into the order in which `multiply` reads them.
  void (*arrange)(const Product&, size_t first, size_t last);

  // Computes the columns of panels [first, last).
  void (*multiply)(const Product&, size_t first, size_t last);

  // Computes blocks of queries, [first, last): those of a row's first head, of its next, and so on.
  void (*attend)(const Attention&, size_t first, size_t last);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512VnniKernels;
// Before 16, Clang has dot products only where everything is compiled for them.
#elif defined(__aarch64__) && (!defined(__clang__) || __clang_major__ >= 16)
#define SHAPEROUTER_NEON_DOT
extern const Kernels kNeonDotKernels;
#endif

// Those that this processor can run, the fastest first, and a null behind them.
const Kernels* const* RunnableKernels();

// The kernels that run fastest on this processor, or those of the name that the environment
// variable SHAPEROUTER_KERNELS_ISA has, if it can run them: so that tests reach all.
const Kernels& ChosenKernels();

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_KERNELS_H_
