// The operands of what is computed for each row by itself: norms, embeddings, sums of softmax.

#ifndef SHAPEROUTER_KERNELS_ROWS_H_
#define SHAPEROUTER_KERNELS_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "parallel.h"

namespace shaperouter {

struct Kernels;

// out = gain * (z - mean) / sqrt(variance + epsilon) + bias, for each row z = x + y (a layer norm);
// or gain * z / sqrt(mean square + epsilon) + bias (an RMS norm).
struct Norm {
  size_t rows;   // M
  size_t width;  // E

  const float* x;     // [M, E]
  const float* y;     // [M, E]; null if nothing is added
  const float* gain;  // [E]; null without one
  const float* bias;  // [E]; null without one
  float epsilon;
  bool centered;  // A layer norm.

  float* out;  // [M, E]
};

// What an embedding of a token is the sum of: rows of tables, each by an index of the token.
constexpr size_t kTables = 3;

// out = norm(the sum of a row of each table), for each token; see `Norm`.
struct Embedding {
  size_t rows;   // M
  size_t width;  // E

  const float* tables[kTables];  // [N, E] each; null if there is none
  size_t sizes[kTables];         // N
  const int32_t* ids[kTables];   // [M] each; clamped to the table
  const float* gain;             // [E]
  const float* bias;             // [E]
  float epsilon;

  float* out;  // [M, E]
};

// out = the sums that a softmax of each row is computed from: the largest number m of the row, the
// logarithm of the sum of exp(x - m), and the entropy of the softmax.
struct SoftmaxSums {
  static constexpr size_t kCount = 3;

  size_t rows;   // M
  size_t width;  // V

  const float* x;  // [M, V]

  float* out;  // [M, kCount]
};

void Normalize(const Norm& norm, const Kernels& kernels, const Pool& pool);
void EmbedTokens(const Embedding& embedding, const Kernels& kernels, const Pool& pool);
void SumSoftmax(const SoftmaxSums& sums, const Kernels& kernels, const Pool& pool);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_ROWS_H_
