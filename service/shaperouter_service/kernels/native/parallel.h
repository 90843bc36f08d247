// Work split between the threads of a pool that belongs to somebody else.

#ifndef SHAPEROUTER_KERNELS_PARALLEL_H_
#define SHAPEROUTER_KERNELS_PARALLEL_H_

#include <cstddef>

namespace shaperouter {

using Task = void(void*);

// A pool of threads: XLA's, or one of a test.
struct Pool {
  void* handle;
  size_t threads;
  // Has a thread run the task sometime, perhaps the calling one at once; false if it never will.
  bool (*schedule)(void* handle, Task* task, void* data);
};

// Calls body(context, begin, end) for pieces of [0, count) of at most `piece`, on the calling
// thread and on those of the pool that come by, and returns when all are done.
//
// It waits for pieces that are being worked on, never for a thread to begin: the pool may have
// other work, or its only thread may be the calling one. Allocates nothing.
void ForPieces(const Pool& pool, size_t count, size_t piece,
               void (*body)(const void* context, size_t begin, size_t end), const void* context);

template <class Body>
void ForPieces(const Pool& pool, size_t count, size_t piece, const Body& body) {
  ForPieces(
      pool, count, piece,
      [](const void* context, size_t begin, size_t end) {
        (*static_cast<const Body*>(context))(begin, end);
      },
      &body);
}

}  // namespace shaperouter

#endif  // SHAPEROUTER_KERNELS_PARALLEL_H_
