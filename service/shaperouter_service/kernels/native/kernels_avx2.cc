// For x86 with AVX2 and FMA: 16 registers of eight floats.

#include "kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

namespace {
constexpr size_t kLanes = 8;
constexpr size_t kSums = 12;
constexpr size_t kBlockRows = 6;

inline __m256 WidenBytes(const int8_t* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
}  // namespace

#include "kernels.inc"
#include "attention.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx2Kernels = {"avx2", kBlockRows, Arrange, Multiply,
                                                          Attend};

#endif
