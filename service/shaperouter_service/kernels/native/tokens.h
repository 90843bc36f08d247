// The operands of attention over the tokens of several texts, and of sums of them.
//
// Tokens of all texts follow each other without padding. So a batch costs what its tokens cost,
// whatever the longest text is.

#ifndef SHAPEROUTER_KERNELS_TOKENS_H_
#define SHAPEROUTER_KERNELS_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "parallel.h"

namespace shaperouter {

struct Kernels;

// Largest size of a head that attention supports.
constexpr size_t kMostHeadSize = 512;

// out = softmax(scale * query * keys' + bias) * values, for each token and head, over all tokens of
// the token's text.
//
// Every sum is computed in the order of the tokens, so the other texts change no result.
struct TextAttention {
  size_t texts;   // R
  size_t tokens;  // M, room for the tokens of all texts
  size_t heads;   // H
  size_t size;    // D, of a head

  const float* projected;    // [M, 3, H, D]: queries, keys, values
  const int32_t* starts;     // [R + 1], the first token of each text, and the end of the last
  const int32_t* positions;  // [M], in the token's text; null without biases
  // [H, 2 * reach + 1], added to scores by the distance of the key ahead of the query, from -reach
  // to reach, where farther ones are counted in; or null.
  const float* biases;
  size_t reach;
  float scale;

  float* sums;  // [2, H, M], scratch memory: the largest score of each query, the sum of its shares
  float* out;   // [M, H, D]
};

// out = the sum of the tokens of each text, in their order.
struct TextSums {
  size_t texts;  // R
  size_t width;  // E

  const float* x;         // [M, E]
  const int32_t* starts;  // [R + 1], the first token of each text, and the end of the last

  float* out;  // [R, E]
};

void AttendTexts(const TextAttention& attention, const Kernels& kernels, const Pool& pool);
void SumTokens(const TextSums& sums, const Kernels& kernels, const Pool& pool);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_TOKENS_H_
