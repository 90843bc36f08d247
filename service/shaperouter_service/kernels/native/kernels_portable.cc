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

typedef float Four __attribute__((vector_size(4 * sizeof(float))));

inline Four WidenBytes(const int8_t* from) {
  return Four{float(from[0]), float(from[1]), float(from[2]), float(from[3])};
}
}  // namespace

#include "kernels.inc"
#include "attention.inc"

const shaperouter::Kernels shaperouter::kPortableKernels = {"portable", kBlockRows, Arrange,
                                                            Multiply, Attend};
