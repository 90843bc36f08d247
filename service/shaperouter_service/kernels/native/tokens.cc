#include "tokens.h"

#include <algorithm>

#include "kernels.h"

namespace shaperouter {
namespace {

// Numbers that one thread normalizes before a second thread would start, and per piece.
constexpr size_t kNormAlone = 32 << 10;
constexpr size_t kNormPiece = 16 << 10;

// Computes rows of `width` numbers in pieces of some microseconds.
template <class Body>
void ForRows(const Pool& pool, size_t rows, size_t width, const Body& body) {
  if (rows * width <= kNormAlone) {
    body(0, rows);
    return;
  }
  ForPieces(pool, rows, std::max<size_t>(kNormPiece / width, 1), body);
}

}  // namespace

void AttendTexts(const TextAttention& attention, const Kernels& kernels, const Pool& pool) {
  ForPieces(pool, attention.texts * attention.heads, 1,
            [&](size_t first, size_t last) { kernels.attend_texts(attention, first, last); });
}

void AddAndNorm(const AddNorm& norm, const Kernels& kernels, const Pool& pool) {
  ForRows(pool, norm.rows, norm.width,
          [&](size_t first, size_t last) { kernels.add_norm(norm, first, last); });
}

void EmbedTokens(const Embedding& embedding, const Kernels& kernels, const Pool& pool) {
  ForRows(pool, embedding.rows, embedding.width,
          [&](size_t first, size_t last) { kernels.embed(embedding, first, last); });
}

void SumTokens(const TextSums& sums, const Kernels& kernels, const Pool& pool) {
  ForPieces(pool, sums.texts, 1,
            [&](size_t first, size_t last) { kernels.sum_texts(sums, first, last); });
}

}  // namespace shaperouter
