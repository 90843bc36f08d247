// How the GPU's clock is read, with a stand-in for the driver.

#include "clock.h"

#include <cstring>

#include "check.h"

extern int stand_in_loads, stand_in_launches, stand_in_contexts;
extern bool stand_in_refuses;

int main() {
  char contexts[2];
  void *const stream = contexts + 1, *const other_stream = contexts + 2;
  int64_t first = 0, second = 0;
  bool read = false, read_again = false;

  // A driver that refuses the kernel is asked again later.
  stand_in_refuses = true;
  const char* const error = shaperouter::ReadCudaClock(stream, {&first, &read});
  CHECK(error != nullptr && std::strstr(error, "cannot load") != nullptr);
  CHECK(stand_in_contexts == 0);
  stand_in_refuses = false;

  // The kernel is loaded once for each context, and every reading launches it.
  CHECK(shaperouter::ReadCudaClock(stream, {&first, &read}) == nullptr);
  CHECK(shaperouter::ReadCudaClock(stream, {&second, &read_again}) == nullptr);
  CHECK(read && read_again && second > first);
  CHECK(stand_in_loads == 1 && stand_in_launches == 2);
  CHECK(shaperouter::ReadCudaClock(other_stream, {&second, &read}) == nullptr);
  CHECK(stand_in_loads == 2 && stand_in_launches == 3);

  // The context that was current before is current again.
  CHECK(stand_in_contexts == 0);
}
