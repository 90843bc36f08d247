// For any processor: what the compiler makes of vectors of four floats (SSE2 on x86, NEON on ARM).

#include "kernels.h"

namespace {
constexpr size_t kLanes = 4;
#if defined(__aarch64__)
constexpr size_t kSums = 24;
#else
constexpr size_t kSums = 12;
#endif
constexpr size_t kBlockRows = kSums / 4;

struct Quads {
  int8_t bytes[kLanes][4];
};
constexpr int32_t kDotOffset = 0;

inline Quads LoadQuads(const int8_t* from) {
  Quads quads;
  __builtin_memcpy(&quads, from, sizeof quads);
  return quads;
}

template <class Ints>
inline Ints Dot(Ints sums, const Quads& weights, int32_t x) {
  int8_t bytes[4];
  __builtin_memcpy(bytes, &x, sizeof bytes);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t input = 0; input < 4; ++input) {
      sums[lane] += weights.bytes[lane][input] * bytes[input];
    }
  }
  return sums;
}

template <class Ints>
inline void StoreBytes(int8_t* to, Ints ints) {
  for (size_t lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<int8_t>(ints[lane]);
}

struct Nibbles {
  Quads low;
  Quads high;
};
typedef int32_t Dots __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Nibbles LoadNibbles(const uint8_t* from) {
  Nibbles nibbles;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t input = 0; input < 4; ++input) {
      const uint8_t both = from[lane * 4 + input];
      nibbles.low.bytes[lane][input] = both & 15;
      nibbles.high.bytes[lane][input] = both >> 4;
    }
  }
  return nibbles;
}

inline Dots FirstDots(int32_t offset) { return Dots{} + offset; }

inline Dots AddDots(Dots dots, const Quads& weights, int32_t x) { return Dot(dots, weights, x); }

template <class Ints>
inline Ints SumsOfDots(Dots dots, int32_t) {
  return dots;
}
}  // namespace

#include "widening.inc"
#include "kernels.inc"

const shaperouter::Kernels shaperouter::kPortableKernels = {
    "portable", Blocks, Arrange, Multiply, Attend, AttendTextHeads,
    NormalizeRows, EmbedRows, SumSoftmaxRows, TruncateRows, PerturbPieces, SumTextRows};
