#include "kernels.h"

#include <cstdlib>
#include <cstring>

namespace shaperouter {
namespace {

const Kernels& Choose() {
  const char* wanted = std::getenv("SHAPEROUTER_KERNELS_ISA");
  const auto may = [wanted](const Kernels& kernels) {
    return wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, kernels.name) == 0;
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    if (may(kAvx512VnniKernels) && __builtin_cpu_supports("avx512vnni")) return kAvx512VnniKernels;
    if (may(kAvx512Kernels)) return kAvx512Kernels;
  }
  if (may(kAvx2Kernels) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return kAvx2Kernels;
  }
#endif
  return kPortableKernels;
}

}  // namespace

const Kernels& ChosenKernels() {
  static const Kernels& chosen = Choose();
  return chosen;
}

}  // namespace shaperouter
