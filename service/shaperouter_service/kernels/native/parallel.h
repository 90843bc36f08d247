// Parallel loops on a thread pool that somebody else owns.

#ifndef SHAPEROUTER_KERNELS_PARALLEL_H_
#define SHAPEROUTER_KERNELS_PARALLEL_H_

#include <cstddef>

namespace shaperouter {

using Task = void(void*);

// A thread pool: XLA's, or a test's.
struct Pool {
  void* handle;
  size_t threads;
  // Schedules a task, or runs it at once on the calling thread; false if it will never run.
  bool (*schedule)(void* handle, Task* task, void* data);
};

// Calls body(context, begin, end) for pieces of [0, count) of at most `piece`, on the calling
// thread and on idle threads of the pool, and returns when all pieces are done.
//
// It waits only for pieces in progress, never for a thread to start: the pool may be busy, or its
// only thread may be the calling one. It allocates nothing.
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
