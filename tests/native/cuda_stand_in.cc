// A stand-in for NVIDIA's driver, libcuda.so.1, for tests. It has one GPU with 3 GB of memory, keeps
// what it is told about the kernel of the clock, and "runs" that by writing a time that grows with
// each launch.

#include <cstddef>
#include <cstdint>
#include <cstring>

#define EXPORT extern "C"

// Read by the test.
int stand_in_loads = 0, stand_in_launches = 0, stand_in_contexts = 0;
bool stand_in_refuses = false;

namespace {
constexpr int kDevice = 7;
bool is_initialized = false;
int kernel, module_of_kernel;
void* current = nullptr;
}  // namespace

EXPORT int cuInit(unsigned flags) {
  is_initialized = flags == 0 && !stand_in_refuses;
  return is_initialized ? 0 : 100;  // CUDA_ERROR_NO_DEVICE
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (!is_initialized || ordinal != 0) return 101;  // CUDA_ERROR_INVALID_DEVICE
  *device = kDevice;
  return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (device != kDevice) return 101;
  *bytes = 3'000'000'000;
  return 0;
}

// A stream is its own context's address plus one.
EXPORT int cuStreamGetCtx(void* stream, void** context) {
  *context = static_cast<char*>(stream) - 1;
  return 0;
}

EXPORT int cuCtxPushCurrent_v2(void* context) {
  current = context;
  ++stand_in_contexts;
  return 0;
}

EXPORT int cuCtxPopCurrent_v2(void** context) {
  *context = current;
  --stand_in_contexts;
  return 0;
}

EXPORT int cuModuleLoadData(void** module, const void* image) {
  if (stand_in_refuses || current == nullptr ||
      std::strstr(static_cast<const char*>(image), ".entry shaperouter_clock") == nullptr) {
    return 218;  // CUDA_ERROR_INVALID_PTX
  }
  ++stand_in_loads;
  *module = &module_of_kernel;
  return 0;
}

EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (module != &module_of_kernel || std::strcmp(name, "shaperouter_clock") != 0) return 500;
  *function = &kernel;
  return 0;
}

EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned, void*,
                          void** parameters, void** extra) {
  if (function != &kernel || grid_x * grid_y * grid_z * block_x * block_y * block_z != 1 ||
      extra != nullptr) {
    return 1;
  }
  **static_cast<int64_t**>(parameters[0]) = 1000 * ++stand_in_launches;
  **static_cast<bool**>(parameters[1]) = true;
  return 0;
}
