// What the functions that XLA calls share.

#ifndef SHAPEROUTER_KERNELS_HANDLERS_H_
#define SHAPEROUTER_KERNELS_HANDLERS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels.h"
#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace shaperouter {

// XLA's own wrapper of its thread pool allocates memory for each task; this one does not.
struct XlaPool {
  const XLA_FFI_Api* api;
  XLA_FFI_ExecutionContext* context;

  bool Schedule(Task* task, void* data) const {
    XLA_FFI_ThreadPool_Schedule_Args args{};
    args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
    args.ctx = context;
    args.task = task;
    args.data = data;
    return Succeeded(api->XLA_FFI_ThreadPool_Schedule(&args));
  }

  size_t Threads() const {
    int64_t threads = 0;
    XLA_FFI_ThreadPool_NumThreads_Args args{};
    args.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
    args.ctx = context;
    args.num_threads = &threads;
    return Succeeded(api->XLA_FFI_ThreadPool_NumThreads(&args)) ? std::max<int64_t>(threads, 1) : 1;
  }

 private:
  bool Succeeded(XLA_FFI_Error* error) const {
    if (error == nullptr) return true;
    XLA_FFI_Error_Destroy_Args args{};
    args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
    args.error = error;
    api->XLA_FFI_Error_Destroy(&args);
    return false;
  }
};

}  // namespace shaperouter

template <>
struct xla::ffi::CtxDecoding<shaperouter::XlaPool> {
  using Type = shaperouter::XlaPool;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine&) {
    return Type{api, context};
  }
};

namespace shaperouter {

using Floats = ffi::Buffer<ffi::F32>;
using Matrix = ffi::BufferR2<ffi::F32>;
using Heads = ffi::BufferR4<ffi::F32>;
using Index = ffi::BufferR0<ffi::S32>;
using Counts = ffi::BufferR1<ffi::S32>;
using Flags = ffi::BufferR1<ffi::PRED>;
using Seeds = ffi::BufferR2<ffi::U32>;

inline Pool AsPool(XlaPool& pool) {
  return {&pool, pool.Threads(), [](void* handle, Task* task, void* data) {
            return static_cast<const XlaPool*>(handle)->Schedule(task, data);
          }};
}

// Whether an operand has a number for each column, or is absent: it then has no elements.
inline bool IsColumnsOrNone(const Floats& values, int64_t columns) {
  const int64_t count = values.element_count();
  return count == columns || count == 0;
}

// Null for an absent operand.
inline const float* OrNull(const Floats& values) {
  return values.element_count() == 0 ? nullptr : values.typed_data();
}

// The rows that are computed, which are the first ones: all, unless an operand of [1] says how many.
inline int64_t RowsOf(const Counts& count, int64_t rows) {
  if (count.element_count() == 0) return rows;
  return std::clamp<int64_t>(*count.typed_data(), 0, rows);
}

inline bool AreAlike(ffi::Span<const int64_t> some, ffi::Span<const int64_t> others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end());
}

// Registers a function; returns whether XLA accepted it.
inline bool Register(const XLA_FFI_Api* api, const char* name, XLA_FFI_Handler* handler) {
  // The version is part of the name, so a graph compiled for another version can't call this one.
  const auto versioned = std::string(name) + "_" + std::to_string(kVersion);
  return ffi::Ffi::RegisterStaticHandler(api, versioned, "Host", handler) == nullptr;
}

// Registers the functions that compute rows by themselves; returns whether XLA accepted them.
bool RegisterRows(const XLA_FFI_Api* api);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_HANDLERS_H_
