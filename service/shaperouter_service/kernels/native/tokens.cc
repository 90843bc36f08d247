#include "tokens.h"

#include "kernels.h"

namespace shaperouter {

void AttendTexts(const TextAttention& attention, const Kernels& kernels, const Pool& pool) {
  ForPieces(pool, attention.texts * attention.heads, 1,
            [&](size_t first, size_t last) { kernels.attend_texts(attention, first, last); });
}

void SumTokens(const TextSums& sums, const Kernels& kernels, const Pool& pool) {
  ForPieces(pool, sums.texts, 1,
            [&](size_t first, size_t last) { kernels.sum_texts(sums, first, last); });
}

}  // namespace shaperouter
