// For x86 with AVX-512 and its instructions for bytes (VNNI): 32 registers of sixteen floats.

#include "kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vnni")
#endif

namespace {
constexpr size_t kLanes = 16;
constexpr size_t kSums = 24;
constexpr size_t kBlockRows = 12;

// One instruction multiplies unsigned by signed bytes and adds up: 128 is added to the weights, and
// the initial values of the sums correct for it.
struct Quads {
  __m512i bytes;
};
constexpr int32_t kDotOffset = 128;

inline Quads LoadQuads(const int8_t* from) {
  return {_mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128))};
}

template <class Ints>
inline Ints Dot(Ints sums, const Quads& weights, int32_t x) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)sums, weights.bytes, _mm512_set1_epi32(x));
}

struct Nibbles {
  __m512i low;
  __m512i high;
};
using Dots = __m512i;

inline Nibbles LoadNibbles(const uint8_t* from) {
  const __m512i bytes = _mm512_loadu_si512(from), mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask)};
}

inline Dots FirstDots(int32_t offset) { return _mm512_set1_epi32(offset); }

inline Dots AddDots(Dots dots, __m512i weights, int32_t x) {
  return _mm512_dpbusd_epi32(dots, weights, _mm512_set1_epi32(x));
}

template <class Ints>
inline Ints SumsOfDots(Dots dots, int32_t) {
  return (Ints)dots;
}
}  // namespace

#include "kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kAvx512VnniKernels = {
    "avx512vnni", kBlockRows, Arrange, Multiply, Attend, AttendTextHeads,
    AddNormRows, EmbedRows, SumTextRows};

#endif
