// The operands of an attention of a few queries over a cache.

#ifndef SHAPEROUTER_KERNELS_ATTENTION_H_
#define SHAPEROUTER_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Queries of a block: they share each read of the cache.
constexpr size_t kBlockQueries = 4;

// out = softmax(scale * query * keys' + bias) * values, for each row and head, over the visible
// positions before the end of a query.
//
// Nothing beyond an end is read, so the cost depends on the used part of a cache, not on its
// capacity. Every sum is computed in the order of the positions, so neither the capacity nor the
// other rows and queries change a result. A query that sees nothing gets zeros.
struct Attention {
  size_t rows;     // R
  size_t heads;    // H
  size_t queries;  // Q
  size_t length;   // T
  size_t size;     // D, of a head

  const float* query;   // [R, H, Q, D]
  const float* keys;    // [R, H, T, D], rows `row_stride` numbers apart
  const float* values;  // As keys.
  size_t row_stride;    // H * T * D, times the layers that a cache has.
  const int32_t* ends;  // [R], clamped to [0, T]
  bool causal;          // Ends are those of the last queries; each earlier query ends one before.
  const bool* visible;  // [R, Q, T], or null if all positions before the end are
  const float* bias;    // [R, H, Q, T], or null
  float scale;

  float* shares;  // [R, H, Q, T], scratch memory
  float* out;     // [R, H, Q, D]

  // The first position of a row that a query may not see.
  size_t End(size_t row, size_t query) const {
    const int64_t later = causal ? static_cast<int64_t>(queries - 1 - query) : 0;
    const int64_t end = ends[row] - later, limit = static_cast<int64_t>(length);
    return static_cast<size_t>(end < 0 ? 0 : end < limit ? end : limit);
  }

  size_t Blocks() const { return (queries + kBlockQueries - 1) / kBlockQueries; }
};

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_ATTENTION_H_
