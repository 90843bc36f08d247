// For x86 with AVX-512 and its instructions for bytes (VNNI) and bfloat16: 32 registers of sixteen
// floats.

#include "kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni,avx512bf16"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vnni,avx512bf16")
#endif

namespace {
constexpr size_t kLanes = 16;
constexpr size_t kSums = 24;
constexpr size_t kBlockRows = 12;

// One instruction multiplies pairs and adds up: to each sum, first the product of the second
// numbers, then that of the first ones, each rounded to the nearest.
constexpr size_t kPairWords = 1;
using Pairs = __m512i;

inline Pairs LoadPairs(const void* from) { return _mm512_loadu_si512(from); }

template <class Vector>
inline Vector AddPairs(Vector sums, Pairs weights, const float* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof pair);
  return _mm512_dpbf16_ps(sums, (__m512bh)weights, (__m512bh)_mm512_set1_epi32(pair));
}
}  // namespace

#include "vnni.inc"
#include "kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx512Bf16Kernels = {
    "avx512bf16", Blocks, Arrange, Multiply, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};

#endif
