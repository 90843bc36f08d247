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

// Multiplies unsigned by signed bytes: the signs of the weights move to the bytes of the row.
struct Quads {
  __m256i bytes;
  __m256i absolute;
};
constexpr int32_t kDotOffset = 0;

inline Quads LoadQuads(const int8_t* from) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return {bytes, _mm256_abs_epi8(bytes)};
}

template <class Ints>
inline Ints Dot(Ints sums, const Quads& weights, int32_t x) {
  const __m256i as_signed = _mm256_sign_epi8(_mm256_set1_epi32(x), weights.bytes);
  const __m256i pairs = _mm256_maddubs_epi16(weights.absolute, as_signed);
  return sums + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

template <class Ints>
inline void StoreBytes(int8_t* to, Ints ints) {
  // Four of them in each half, side by side, and then these beside each other.
  const __m256i halves = _mm256_shuffle_epi8((__m256i)ints, _mm256_set1_epi32(0x0c080400));
  const __m256i bytes =
      _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bytes));
}

// A group's products of unsigned by signed bytes are added up in 16 bits: 16 of them are at most
// 16 * 15 * 127.
struct Nibbles {
  __m256i low;
  __m256i high;
};
using Dots = __m256i;

inline Nibbles LoadNibbles(const uint8_t* from) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask)};
}

inline Dots FirstDots(int32_t) { return _mm256_setzero_si256(); }

inline Dots AddDots(Dots dots, __m256i weights, int32_t x) {
  return _mm256_add_epi16(dots, _mm256_maddubs_epi16(weights, _mm256_set1_epi32(x)));
}

template <class Ints>
inline Ints SumsOfDots(Dots dots, int32_t offset) {
  return (Ints)_mm256_madd_epi16(dots, _mm256_set1_epi16(1)) + offset;
}
}  // namespace

#include "widening.inc"
#include "kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx2Kernels = {
    "avx2", Blocks, Arrange, Multiply, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};

#endif
