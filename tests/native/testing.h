// What the tests of the kernels share.

#ifndef SHAPEROUTER_TESTS_TESTING_H_
#define SHAPEROUTER_TESTS_TESTING_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace testing {

using shaperouter::Pool;
using shaperouter::Task;

// Floats that begin four bytes behind an address that vectors like.
class Floats {
 public:
  explicit Floats(size_t size) : memory_(new float[size + 1]), size_(size) {}
  float* data() { return memory_.get() + 1; }
  float& operator[](size_t index) { return data()[index]; }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<float[]> memory_;
  size_t size_;
};

class Threads {
 public:
  explicit Threads(size_t count) {
    for (size_t index = 0; index < count; ++index) threads_.emplace_back([this] { Run(); });
  }
  ~Threads() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  Pool pool() {
    return {this, threads_.size(), [](void* handle, Task* task, void* data) {
              auto* self = static_cast<Threads*>(handle);
              {
                std::lock_guard lock(self->mutex_);
                self->tasks_.push_back({task, data});
              }
              self->changed_.notify_one();
              return true;
            }};
  }

 private:
  void Run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto [task, data] = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      task(data);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Task*, void*>> tasks_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

// Tests what is computed for each row by itself.
void TestRows(const shaperouter::Kernels& kernels, const Pool& pool);

}  // namespace testing

#endif  // SHAPEROUTER_TESTS_TESTING_H_
