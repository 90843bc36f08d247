// For ARM with NEON's dot products of bytes (ARMv8.4, and many of 8.2): 32 registers of four floats.

#include "kernels.h"

#if defined(SHAPEROUTER_NEON_DOT)

#include <arm_neon.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

namespace {
constexpr size_t kLanes = 4;
constexpr size_t kSums = 24;
constexpr size_t kBlockRows = 6;

struct Quads {
  int8x16_t bytes;
};
constexpr int32_t kDotOffset = 0;

inline Quads LoadQuads(const int8_t* from) { return {vld1q_s8(from)}; }

template <class Ints>
inline Ints Dot(Ints sums, const Quads& weights, int32_t x) {
  const int8x16_t bytes = vreinterpretq_s8_s32(vdupq_n_s32(x));
  return (Ints)vdotq_s32((int32x4_t)sums, weights.bytes, bytes);
}

template <class Ints>
inline void StoreBytes(int8_t* to, Ints ints) {
  const int16x4_t narrow = vmovn_s32((int32x4_t)ints);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(narrow, narrow));
  __builtin_memcpy(to, &bytes, kLanes);
}

struct Nibbles {
  int8x16_t low;
  int8x16_t high;
};
using Dots = int32x4_t;

inline Nibbles LoadNibbles(const uint8_t* from) {
  const uint8x16_t bytes = vld1q_u8(from);
  return {vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))),
          vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4))};
}

inline Dots FirstDots(int32_t offset) { return vdupq_n_s32(offset); }

inline Dots AddDots(Dots dots, int8x16_t weights, int32_t x) {
  return vdotq_s32(dots, weights, vreinterpretq_s8_s32(vdupq_n_s32(x)));
}

template <class Ints>
inline Ints SumsOfDots(Dots dots, int32_t) {
  return (Ints)dots;
}
}  // namespace

#include "widening.inc"
#include "kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif

const shaperouter::Kernels shaperouter::kNeonDotKernels = {
    "neondot", Blocks, Arrange, Multiply, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};

#endif
