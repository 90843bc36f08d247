// For x86 with AVX-512 and its operations on bytes: 32 registers of sixteen floats.

#include "kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw")
#endif

namespace {
constexpr size_t kLanes = 16;
constexpr size_t kSums = 24;
constexpr size_t kBlockRows = 12;

// Multiplies unsigned by signed bytes: the signs of the weights move to the bytes of the row.
struct Quads {
  __m512i absolute;
  __mmask64 negative;
};
constexpr int32_t kDotOffset = 0;

inline Quads LoadQuads(const int8_t* from) {
  const __m512i bytes = _mm512_loadu_si512(from);
  return {_mm512_abs_epi8(bytes), _mm512_movepi8_mask(bytes)};
}

template <class Ints>
inline Ints Dot(Ints sums, const Quads& weights, int32_t x) {
  const __m512i bytes = _mm512_set1_epi32(x);
  const __m512i as_signed =
      _mm512_mask_sub_epi8(bytes, weights.negative, _mm512_setzero_si512(), bytes);
  const __m512i pairs = _mm512_maddubs_epi16(weights.absolute, as_signed);
  return sums + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

template <class Ints>
inline void StoreBytes(int8_t* to, Ints ints) {
  // Without a mask, GCC 12 warns of a variable of its own.
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)ints);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

// A group's products of unsigned by signed bytes are added up in 16 bits: 16 of them are at most
// 16 * 15 * 127.
struct Nibbles {
  __m512i low;
  __m512i high;
};
using Dots = __m512i;

inline Nibbles LoadNibbles(const uint8_t* from) {
  const __m512i bytes = _mm512_loadu_si512(from);
  const __m512i mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask)};
}

inline Dots FirstDots(int32_t) { return _mm512_setzero_si512(); }

inline Dots AddDots(Dots dots, __m512i weights, int32_t x) {
  return _mm512_add_epi16(dots, _mm512_maddubs_epi16(weights, _mm512_set1_epi32(x)));
}

template <class Ints>
inline Ints SumsOfDots(Dots dots, int32_t offset) {
  return (Ints)_mm512_madd_epi16(dots, _mm512_set1_epi16(1)) + offset;
}
}  // namespace

#include "widening.inc"
#include "kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx512Kernels = {
    "avx512", Blocks, Arrange, Multiply, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};

#endif
