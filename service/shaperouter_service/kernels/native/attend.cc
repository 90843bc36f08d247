#include "attend.h"

#include <algorithm>

namespace shaperouter {
namespace {

// Numbers of a cache that are read sooner than a second thread begins.
constexpr size_t kReadAlone = 16 << 10;

}  // namespace

void Attend(const Attention& attention, const Kernels& kernels, const Pool& pool) {
  if (attention.queries == 0) return;
  size_t end = 0;
  for (size_t row = 0; row < attention.rows; ++row) {
    end = std::max(end, attention.End(row, attention.queries - 1));
  }
  const size_t read = std::max<size_t>(2 * end * attention.size, 1);
  ForPieces(pool, attention.rows * attention.heads * attention.Blocks(),
            std::max<size_t>(kReadAlone / read, 1),
            [&](size_t first, size_t last) { kernels.attend(attention, first, last); });
}

}  // namespace shaperouter
