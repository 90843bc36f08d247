// For x86 with AVX-512: 32 registers of sixteen floats.

#include "kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC target("avx512f")
#endif

namespace {
constexpr size_t kLanes = 16;
constexpr size_t kSums = 24;
constexpr size_t kBlockRows = 12;

inline __m512 WidenBytes(const int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  // Masks of all lanes: without one, GCC 12 warns of its own header.
  constexpr __mmask16 kAll = 0xffff;
  return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, bytes));
}
}  // namespace

#include "kernels.inc"
#include "attention.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx512Kernels = {"avx512", kBlockRows, Arrange, Multiply,
                                                          Attend};

#endif
