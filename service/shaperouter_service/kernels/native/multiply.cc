#include "multiply.h"

#include <algorithm>

namespace shaperouter {
namespace {

// Bytes of weights that a thread reads per piece: enough for the processor to detect a sequential
// read, and few enough for the threads to finish together.
constexpr size_t kPieceBytes = 128 << 10;
// Numbers below which one thread arranges all blocks before a second thread would start.
constexpr size_t kArrangedAlone = 64 << 10;
// Maximum panels of a piece if there are several blocks of rows: their weights stay in the L2 cache
// while all blocks use them.
constexpr size_t kMaxPanels = 16;
// Minimum panels of a piece, a multiple of the panels that kernels take at a time.
constexpr size_t kMinPanels = 4;

// Panels that a thread takes at a time.
size_t PiecePanels(const Product& product, size_t blocks, size_t threads) {
  size_t panels;
  if (blocks == 1) {
    panels = kPieceBytes / PanelSize(product.type, product.inputs);
  } else {
    panels = std::min(PanelCount(product.columns) / (4 * threads), kMaxPanels);
  }
  return std::max(panels / kMinPanels * kMinPanels, kMinPanels);
}

}  // namespace

void Multiply(const Product& product, const Kernels& kernels, const Pool& pool) {
  if (product.rows == 0) return;
  const size_t blocks = kernels.blocks(product);
  // A single row of floats needs no arranging.
  if (product.rows > 1 || IsRounded(product.type)) {
    const auto arrange = [&](size_t first, size_t last) { kernels.arrange(product, first, last); };
    if (product.rows * product.inputs <= kArrangedAlone) {
      arrange(0, blocks);
    } else {
      ForPieces(pool, blocks, 1, arrange);
    }
  }
  const size_t piece = PiecePanels(product, blocks, std::max<size_t>(pool.threads, 1));
  ForPieces(pool, PanelCount(product.columns), piece,
            [&](size_t first, size_t last) { kernels.multiply(product, first, last); });
}

}  // namespace shaperouter
