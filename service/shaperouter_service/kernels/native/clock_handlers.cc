// The functions that read a device's clock for XLA, and their registration.

#include <string>

#include "clock.h"
#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace shaperouter {
namespace {

using Nanoseconds = ffi::Result<ffi::BufferR1<ffi::S64>>;
using Flag = ffi::Result<ffi::BufferR1<ffi::PRED>>;

// Operands are not read: they only have to be computed before.
ffi::Error OnHost(ffi::RemainingArgs, Nanoseconds nanoseconds, Flag read) {
  if (nanoseconds->element_count() != 1 || read->element_count() != 1) {
    return ffi::Error::InvalidArgument("clock: results must have one element");
  }
  ReadHostClock({nanoseconds->typed_data(), read->typed_data()});
  return ffi::Error::Success();
}

ffi::Error OnCuda(void* stream, ffi::RemainingArgs, Nanoseconds nanoseconds, Flag read) {
  if (nanoseconds->element_count() != 1 || read->element_count() != 1) {
    return ffi::Error::InvalidArgument("clock: results must have one element");
  }
  const char* const error =
      ReadCudaClock(stream, {nanoseconds->typed_data(), read->typed_data()});
  return error == nullptr ? ffi::Error::Success() : ffi::Error::Internal(error);
}

XLA_FFI_DEFINE_HANDLER(
    kOnHost, OnHost,
    ffi::Ffi::Bind().RemainingArgs().Ret<ffi::BufferR1<ffi::S64>>().Ret<ffi::BufferR1<ffi::PRED>>());

XLA_FFI_DEFINE_HANDLER(kOnCuda, OnCuda,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<void*>>()
                           .RemainingArgs()
                           .Ret<ffi::BufferR1<ffi::S64>>()
                           .Ret<ffi::BufferR1<ffi::PRED>>());

}  // namespace

bool RegisterClock(const XLA_FFI_Api* api) {
  const auto name = "shaperouter_clock_" + std::to_string(kVersion);
  return ffi::Ffi::RegisterStaticHandler(api, name, "Host", kOnHost) == nullptr &&
         ffi::Ffi::RegisterStaticHandler(api, name, "CUDA", kOnCuda) == nullptr;
}

}  // namespace shaperouter
