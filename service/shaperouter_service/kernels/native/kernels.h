// The code of all kernels, once for each instruction set.

#ifndef SHAPEROUTER_KERNELS_KERNELS_H_
#define SHAPEROUTER_KERNELS_KERNELS_H_

#include <cstddef>
#include <utility>  // For kernels.inc, which includes nothing itself: it is another processor's code.

#include "attention.h"
#include "choice.h"
#include "product.h"
#include "rows.h"
#include "tokens.h"

namespace shaperouter {

// Version of all that graphs and packed weights rely on: names, operands and layouts.
constexpr int kVersion = 14;

// The functions of one instruction set. Calls for the same operands may run in parallel if their
// ranges do not overlap; all blocks are arranged before the first panel is multiplied.
struct Kernels {
  const char* name;

  // Number of blocks of rows that `arrange` takes.
  size_t (*blocks)(const Product&);

  // Arranges blocks of rows, [first, last), in the order in which `multiply` reads them.
  void (*arrange)(const Product&, size_t first, size_t last);

  // Computes the columns of panels [first, last).
  void (*multiply)(const Product&, size_t first, size_t last);

  // Computes blocks of queries, [first, last), numbered by row, then head, then block.
  void (*attend)(const Attention&, size_t first, size_t last);

  // Computes heads of texts, [first, last), numbered by text, then head.
  void (*attend_texts)(const TextAttention&, size_t first, size_t last);

  // Compute rows [first, last).
  void (*normalize)(const Norm&, size_t first, size_t last);
  void (*embed)(const Embedding&, size_t first, size_t last);
  void (*sum_softmax)(const SoftmaxSums&, size_t first, size_t last);

  // Truncate rows [first, last), and perturb pieces of rows, numbered by row, then piece.
  void (*truncate)(const Truncation&, size_t first, size_t last);
  void (*perturb)(const Perturbation&, size_t first, size_t last);

  // Computes texts [first, last).
  void (*sum_texts)(const TextSums&, size_t first, size_t last);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512VnniKernels;
extern const Kernels kAvx512Bf16Kernels;
extern const Kernels kAmxKernels;
// Clang before 16 offers dot products only if the whole file is compiled for them.
#elif defined(__aarch64__) && (!defined(__clang__) || __clang_major__ >= 16)
#define SHAPEROUTER_NEON_DOT
extern const Kernels kNeonDotKernels;
#endif

// The kernels that this processor can run, fastest first, followed by null.
const Kernels* const* RunnableKernels();

// Whether this processor is faster if weights that are read once never get into its L2 cache. Those
// of AMD are, by 2 to 6 %; those of Intel take two to three times as long.
bool ReadsPastL2();

// The fastest kernels on this processor, or those that the environment variable
// SHAPEROUTER_KERNELS_ISA names, if the processor can run them, so that tests can reach all.
const Kernels& ChosenKernels();

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_KERNELS_H_
