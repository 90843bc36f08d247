#include "kernels.h"

#include <cstdlib>
#include <cstring>

#if defined(SHAPEROUTER_NEON_DOT) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace shaperouter {
namespace {

#if defined(__x86_64__)
// Whether the processor has tiles (AMX) for bytes and bfloat16, and Linux lets this process use
// them: a thread's tiles are 8 KB more to save, for which it must be asked once.
bool MayUseTiles() {
#if defined(__linux__)
  constexpr unsigned kTiles = 1 << 22 | 1 << 24 | 1 << 25;  // AMX-BF16, AMX-TILE and AMX-INT8
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & kTiles) == kTiles &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

// In order of speed, fastest first.
class Runnable {
 public:
  Runnable() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
      if (__builtin_cpu_supports("avx512vnni")) {
        if (MayUseTiles()) Add(kAmxKernels);
        if (__builtin_cpu_supports("avx512bf16")) Add(kAvx512Bf16Kernels);
        Add(kAvx512VnniKernels);
      }
      Add(kAvx512Kernels);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) Add(kAvx2Kernels);
#elif defined(SHAPEROUTER_NEON_DOT) && defined(__linux__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) Add(kNeonDotKernels);
#endif
    Add(kPortableKernels);
  }

  const Kernels* const* kernels() const { return kernels_; }

 private:
  void Add(const Kernels& kernels) { kernels_[count_++] = &kernels; }

  const Kernels* kernels_[8] = {};
  size_t count_ = 0;
};

const Kernels& Choose() {
  const Kernels* const* runnable = RunnableKernels();
  const char* wanted = std::getenv("SHAPEROUTER_KERNELS_ISA");
  if (wanted != nullptr) {
    for (const Kernels* const* some = runnable; *some != nullptr; ++some) {
      if (std::strcmp(wanted, (*some)->name) == 0) return **some;
    }
  }
  return **runnable;
}

}  // namespace

const Kernels* const* RunnableKernels() {
  static const Runnable runnable;
  return runnable.kernels();
}

bool ReadsPastL2() {
#if defined(__x86_64__)
  static const bool past = (__builtin_cpu_init(), __builtin_cpu_is("amd"));
  return past;
#else
  return false;
#endif
}

const Kernels& ChosenKernels() {
  static const Kernels& chosen = Choose();
  return chosen;
}

}  // namespace shaperouter
