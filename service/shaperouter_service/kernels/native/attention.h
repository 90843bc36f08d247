// Attention of a few queries over a cache: what it is made of.

#ifndef SHAPEROUTER_KERNELS_ATTENTION_H_
#define SHAPEROUTER_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Queries that share what is read of a cache.
constexpr size_t kBlockQueries = 4;

// out = softmax(scale * query * keys' + bias) * values, for each row and head, over the places
// before a query's end that it sees.
//
// Nothing beyond an end is read: a cache costs what is in it, not what it has room for. Every sum
// is made in the order of the places, so that neither that room nor the other rows and queries
// change a result. A query that sees nothing gets zeros.
struct Attention {
  size_t rows;     // R
  size_t heads;    // H
  size_t queries;  // Q
  size_t places;   // T
  size_t size;     // D, of a head

  const float* query;   // [R, H, Q, D]
  const float* keys;    // [R, H, T, D], rows `row_stride` numbers apart
  const float* values;  // As keys.
  size_t row_stride;    // H * T * D, times the layers that a cache has.
  const int32_t* ends;  // [R], what is beyond [0, T] counts as the nearest that is not
  bool causal;          // Ends are those of the last queries; each before has its one place before.
  const bool* visible;  // [R, Q, T], or null if all places before the end are
  const float* bias;    // [R, H, Q, T], or null
  float scale;

  float* shares;  // [R, H, Q, T], to work in
  float* out;     // [R, H, Q, D]

  // The first place that a query of a row may not see.
  size_t End(size_t row, size_t query) const {
    const int64_t later = causal ? static_cast<int64_t>(queries - 1 - query) : 0;
    const int64_t end = ends[row] - later, most = static_cast<int64_t>(places);
    return static_cast<size_t>(end < 0 ? 0 : end < most ? end : most);
  }

  size_t Blocks() const { return (queries + kBlockQueries - 1) / kBlockQueries; }
};

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_ATTENTION_H_
