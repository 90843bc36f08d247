#include "attend.h"

#include <algorithm>

namespace shaperouter {
namespace {

// Numbers that one thread can read from caches before a second thread would start.
constexpr size_t kReadAlone = 128 << 10;
// Numbers that a thread reads per piece: a few microseconds of work.
constexpr size_t kPiece = 16 << 10;
// Each thread gets at least this many pieces where blocks are scored together, because later
// queries of a prompt see more than earlier ones.
constexpr size_t kThreadPieces = 4;

}  // namespace

void Attend(const Attention& attention, const Kernels& kernels, const Pool& pool) {
  if (attention.queries == 0) return;
  // The last query reads about as many positions as any other, and at least as many without starts.
  size_t positions = 0;
  for (size_t row = 0; row < attention.rows; ++row) {
    const size_t last = attention.LastNeeded(row);
    const size_t start = attention.Start(row, last), end = attention.End(row, last);
    positions = std::max(positions, std::max(start, end) - start);
  }
  const size_t blocks = attention.rows * attention.heads * attention.Blocks();
  const size_t read = std::max<size_t>(2 * positions * attention.size, 1);
  if (blocks * read <= kReadAlone) {
    kernels.attend(attention, 0, blocks);
    return;
  }
  const size_t of_head = attention.Blocks();
  const size_t together =
      of_head < kFewBlocks
          ? 1
          : std::min({kRunBlocks, of_head,
                      blocks / (kThreadPieces * std::max<size_t>(pool.threads, 1))});
  ForPieces(pool, blocks, std::max({kPiece / read, together, size_t{1}}),
            [&](size_t first, size_t last) { kernels.attend(attention, first, last); });
}

}  // namespace shaperouter
