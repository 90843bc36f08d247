#include "rows.h"

#include <algorithm>

#include "kernels.h"

namespace shaperouter {
namespace {

// Numbers that one thread computes with before a second thread would start, and per piece.
constexpr size_t kAlone = 32 << 10;
constexpr size_t kPiece = 16 << 10;

// Computes rows of `width` numbers in pieces of some microseconds.
template <class Body>
void ForRows(const Pool& pool, size_t rows, size_t width, const Body& body) {
  if (rows * width <= kAlone) {
    body(0, rows);
    return;
  }
  ForPieces(pool, rows, std::max<size_t>(kPiece / width, 1), body);
}

}  // namespace

void Normalize(const Norm& norm, const Kernels& kernels, const Pool& pool) {
  ForRows(pool, norm.rows, norm.width,
          [&](size_t first, size_t last) { kernels.normalize(norm, first, last); });
}

void EmbedTokens(const Embedding& embedding, const Kernels& kernels, const Pool& pool) {
  ForRows(pool, embedding.rows, embedding.width,
          [&](size_t first, size_t last) { kernels.embed(embedding, first, last); });
}

void SumSoftmax(const SoftmaxSums& sums, const Kernels& kernels, const Pool& pool) {
  ForRows(pool, sums.rows, sums.width,
          [&](size_t first, size_t last) { kernels.sum_softmax(sums, first, last); });
}

}  // namespace shaperouter
