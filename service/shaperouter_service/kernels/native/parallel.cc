#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>

namespace shaperouter {
namespace {

// Threads of larger pools share spans.
constexpr size_t kMaxSpans = 16;

// Part of a range. Threads take its pieces in order.
struct alignas(64) Span {
  std::atomic<size_t> next{0};  // Where the next piece begins.
  size_t end = 0;
};

// Work that threads share. Each thread begins with a span of its own, whose pieces are adjacent: it
// reads memory as one stream, and the beginning of the next piece has already been prefetched. Then
// it helps with the spans of others.
//
// A thread of the pool may start when all work is done and the caller has returned, so jobs are
// never freed, and a job is reused only when every thread has left it.
struct alignas(64) Job {
  std::atomic<size_t> users{0};
  std::atomic<size_t> started{0};     // Threads that have begun to work.
  std::atomic<size_t> unfinished{0};  // Elements of the range that are not done.
  size_t piece = 0;
  void (*body)(const void*, size_t, size_t) = nullptr;
  const void* context = nullptr;
  size_t span_count = 0;
  Span spans[kMaxSpans];

  void Divide(size_t count, size_t threads) {
    const size_t pieces = (count + piece - 1) / piece;
    span_count = std::min(threads, kMaxSpans);
    for (size_t span = 0; span < span_count; ++span) {
      spans[span].next.store(pieces * span / span_count * piece, std::memory_order_relaxed);
      spans[span].end = std::min(pieces * (span + 1) / span_count * piece, count);
    }
    started.store(0, std::memory_order_relaxed);
    unfinished.store(count, std::memory_order_relaxed);
  }

  void Work() {
    const size_t own = started.fetch_add(1, std::memory_order_relaxed);
    for (size_t turn = 0; turn < span_count; ++turn) {
      Span& span = spans[(own + turn) % span_count];
      for (;;) {
        const size_t begin = span.next.fetch_add(piece, std::memory_order_relaxed);
        if (begin >= span.end) break;
        const size_t end = std::min(begin + piece, span.end);
        body(context, begin, end);
        unfinished.fetch_sub(end - begin, std::memory_order_release);
      }
    }
  }

  void Leave() { users.fetch_sub(1, std::memory_order_release); }
};

// Far more than graphs run at a time; if all are taken, a caller works alone.
Job jobs[256];
std::atomic<size_t> last_taken{0};

Job* Take(size_t users) {
  for (size_t attempt = 0; attempt < std::size(jobs); ++attempt) {
    Job& job = jobs[last_taken.fetch_add(1, std::memory_order_relaxed) % std::size(jobs)];
    size_t nobody = 0;
    if (job.users.compare_exchange_strong(nobody, users, std::memory_order_acquire)) return &job;
  }
  return nullptr;
}

// Pieces take some 10 to 100 µs, so most waits are shorter than going to sleep.
void WaitFor(const std::atomic<size_t>& unfinished) {
  constexpr int kSpins = 2000;
  for (int spin = 0; unfinished.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

void ForPieces(const Pool& pool, size_t count, size_t piece,
               void (*body)(const void* context, size_t begin, size_t end), const void* context) {
  const size_t pieces = (count + piece - 1) / piece;
  const size_t helpers = std::min(pieces, std::max<size_t>(pool.threads, 1)) - (pieces > 0);
  Job* job = helpers > 0 ? Take(1 + helpers) : nullptr;
  if (job == nullptr) {
    if (count > 0) body(context, 0, count);
    return;
  }
  job->piece = piece;
  job->Divide(count, 1 + helpers);
  job->body = body;
  job->context = context;
  for (size_t helper = 0; helper < helpers; ++helper) {
    const auto help = [](void* data) {
      Job* job = static_cast<Job*>(data);
      job->Work();
      job->Leave();
    };
    if (!pool.schedule(pool.handle, help, job)) job->Leave();
  }
  job->Work();
  WaitFor(job->unfinished);
  job->Leave();
}

}  // namespace shaperouter
