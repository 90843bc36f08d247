// The operands of an attention of a few queries over a cache.

#ifndef SHAPEROUTER_KERNELS_ATTENTION_H_
#define SHAPEROUTER_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>

namespace shaperouter {

// Queries of a block: they share each read of the cache.
constexpr size_t kBlockQueries = 4;
// The most blocks of a head that kernels score together, and the fewest for which that is faster.
constexpr size_t kRunBlocks = 8, kFewBlocks = 3;

// out = softmax(cap(scale * query * keys') + bias) * values, for each row and head, over the visible
// positions from the start to the end of a query. Each head of keys and values serves the queries
// of one or several heads.
//
// Nothing before a block's starts or beyond an end is read, so the cost depends on the used part of
// a cache, not on its capacity. Every sum is computed in the order of the positions, so neither the
// capacity nor the other rows and queries change a result. A query that sees nothing gets zeros.
struct Attention {
  size_t rows;     // R
  size_t heads;    // H, of keys and values
  size_t group;    // G, heads of queries for each of them
  size_t queries;  // Q, of each head of queries
  size_t length;   // T
  size_t size;     // D, of a head

  const float* query;   // [R, H * G, Q, D]
  const void* keys;     // [R, H, T, D], rows `row_stride` numbers apart
  const void* values;   // As keys.
  bool narrow;          // Keys and values are bfloat16 numbers instead of floats.
  size_t row_stride;    // H * T * D, times the layers that a cache has.
  const int32_t* starts;  // [R], clamped to [0, T], or null for zeros
  const int32_t* ends;    // [R], likewise
  // [R], how many of each head's queries are needed, from the first, or null if all are. The others
  // see nothing.
  const int32_t* counts;
  // Starts and ends are those of the last queries; each earlier query has both one before.
  bool causal;
  const bool* visible;  // [R, Q, T], or null if all positions from the start to the end are
  const float* bias;    // [R, H * G, Q, T], or null
  float scale;
  float cap;  // Scores are bounded smoothly to less than this; 0 for no bound.

  float* shares;  // Room for [R, H * G, Q, T], scratch memory; queries are Reach() apart
  float* out;     // [R, H * G, Q, D]

  // The first position of a row that a query sees. `query` counts the queries of a group.
  size_t Start(size_t row, size_t query) const {
    return starts == nullptr ? 0 : Position(starts[row], query);
  }

  // The first position after those that a query sees.
  size_t End(size_t row, size_t query) const {
    const bool needed =
        counts == nullptr || static_cast<int64_t>(query % queries) < int64_t{counts[row]};
    return needed ? Position(ends[row], query) : 0;
  }

  // The end of the row that sees most.
  size_t Reach() const {
    size_t reach = 0;
    for (size_t row = 0; row < rows; ++row) {
      const size_t end = Position(ends[row], queries - 1);
      reach = end > reach ? end : reach;
    }
    return reach;
  }

  // The last of a head's queries that is needed, or the first if none is.
  size_t LastNeeded(size_t row) const {
    const int64_t all = static_cast<int64_t>(queries);
    const int64_t needed = counts == nullptr || counts[row] > all ? all : counts[row];
    return static_cast<size_t>(needed > 0 ? needed - 1 : 0);
  }

  // Blocks of the queries of a group.
  size_t Blocks() const { return (group * queries + kBlockQueries - 1) / kBlockQueries; }

 private:
  size_t Position(int64_t last, size_t query) const {
    const int64_t later = causal ? static_cast<int64_t>(queries - 1 - query % queries) : 0;
    const int64_t position = last - later, limit = static_cast<int64_t>(length);
    return static_cast<size_t>(position < 0 ? 0 : position < limit ? position : limit);
  }
};

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_ATTENTION_H_
