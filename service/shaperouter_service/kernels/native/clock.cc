#include "clock.h"

#include <dlfcn.h>

#include <chrono>
#include <map>
#include <mutex>

namespace shaperouter {
namespace {

// A kernel of one thread, in the assembly language that every driver compiles for its GPU. It reads
// the GPU's clock in nanoseconds, which all of its cores share.
constexpr char kKernel[] = R"(
.version 6.0
.target sm_50
.address_size 64

.visible .entry shaperouter_clock(.param .u64 nanoseconds, .param .u64 read)
{
  .reg .b16 %flag;
  .reg .b64 %time, %to, %also;
  ld.param.u64 %to, [nanoseconds];
  ld.param.u64 %also, [read];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %also, %also;
  mov.u64 %time, %globaltimer;
  st.global.u64 [%to], %time;
  mov.u16 %flag, 1;
  st.global.u8 [%also], %flag;
  ret;
}
)";

// The part of the driver's API that is used. Its functions return 0 if they succeed.
struct Driver {
  int (*stream_context)(void* stream, void** context);
  int (*push_context)(void* context);
  int (*pop_context)(void** context);
  int (*load_module)(void** module, const void* image);
  int (*get_function)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void** parameters, void** extra);
  const char* error;  // Why it cannot be used, or null.
};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Driver Open() {
  Driver driver{};
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.error = "the driver, libcuda.so.1, is missing";
  } else if (!Find(library, "cuStreamGetCtx", driver.stream_context) ||
             !Find(library, "cuCtxPushCurrent_v2", driver.push_context) ||
             !Find(library, "cuCtxPopCurrent_v2", driver.pop_context) ||
             !Find(library, "cuModuleLoadData", driver.load_module) ||
             !Find(library, "cuModuleGetFunction", driver.get_function) ||
             !Find(library, "cuLaunchKernel", driver.launch)) {
    driver.error = "the driver, libcuda.so.1, lacks a function";
  }
  return driver;
}

// The kernel of the current context, which is loaded once; null if the driver refuses it.
void* KernelOf(const Driver& driver, void* context) {
  static std::mutex mutex;
  static std::map<void*, void*> kernels;
  const std::lock_guard lock(mutex);
  const auto known = kernels.find(context);
  if (known != kernels.end()) return known->second;
  void *module = nullptr, *kernel = nullptr;
  if (driver.load_module(&module, kKernel) != 0 ||
      driver.get_function(&kernel, module, "shaperouter_clock") != 0) {
    return nullptr;
  }
  return kernels[context] = kernel;
}

const char* Launch(const Driver& driver, void* context, void* stream, const Reading& reading) {
  void* const kernel = KernelOf(driver, context);
  if (kernel == nullptr) return "the driver cannot load the kernel that reads the GPU's clock";
  int64_t* nanoseconds = reading.nanoseconds;
  bool* read = reading.read;
  void* parameters[] = {&nanoseconds, &read};
  if (driver.launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr) != 0) {
    return "the driver cannot run the kernel that reads the GPU's clock";
  }
  return nullptr;
}

}  // namespace

void ReadHostClock(const Reading& reading) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  *reading.nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  *reading.read = true;
}

const char* ReadCudaClock(void* stream, const Reading& reading) {
  static const Driver driver = Open();
  if (driver.error != nullptr) return driver.error;
  void *context = nullptr, *popped = nullptr;
  if (driver.stream_context(stream, &context) != 0 || driver.push_context(context) != 0) {
    return "the driver does not know the stream";
  }
  const char* const error = Launch(driver, context, stream, reading);
  driver.pop_context(&popped);
  return error;
}

}  // namespace shaperouter
