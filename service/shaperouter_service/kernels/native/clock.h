// The clock of the device that runs a graph.

#ifndef SHAPEROUTER_KERNELS_CLOCK_H_
#define SHAPEROUTER_KERNELS_CLOCK_H_

#include <cstdint>

struct XLA_FFI_Api;

namespace shaperouter {

// What a reading leaves behind: nanoseconds since an arbitrary moment, and a flag that is always
// true. Whatever depends on the flag runs after the reading, but XLA does not know its value.
struct Reading {
  int64_t* nanoseconds;
  bool* read;
};

// Reads the host's clock, which never goes back.
void ReadHostClock(const Reading& reading);

// Has a stream of a CUDA device read the GPU's clock, after all that was given to the stream before.
// `reading` is in the GPU's memory. Returns null, or why it cannot. The driver is opened at the
// first call, so the library needs none where there is no GPU.
const char* ReadCudaClock(void* stream, const Reading& reading);

// Registers the functions that do so in graphs; returns whether XLA accepted them.
bool RegisterClock(const XLA_FFI_Api* api);

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_CLOCK_H_
