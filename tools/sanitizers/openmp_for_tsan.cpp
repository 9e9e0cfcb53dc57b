// What the kernels use of GCC's OpenMP runtime, on threads that ThreadSanitizer understands.
//
// Every parallel region starts threads and joins them, so that the sanitizer sees exactly the order that
// OpenMP guarantees: all before the region, then the region, then all after it. Loops hand out one
// round at a time, which mixes rows among threads as much as can be.

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Team {
  int size;
  std::atomic<long> next{0};
  std::atomic<bool> is_started{false};
  long end = 0, step = 1;
  std::mutex mutex;
  std::condition_variable waiting;
  int arrived = 0, generation = 0;

  void barrier() {
    std::unique_lock<std::mutex> lock(mutex);
    const int mine = generation;
    if (++arrived == size) {
      arrived = 0;
      ++generation;
      is_started = false;
      waiting.notify_all();
    } else {
      waiting.wait(lock, [&] { return generation != mine; });
    }
  }
};

thread_local Team* team = nullptr;
thread_local int number = 0;

int threads() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  return wanted != nullptr ? std::max(std::atoi(wanted), 1) : 4;
}

bool take(long* first, long* last) {
  const long at = team->next.fetch_add(team->step);
  if (at >= team->end) return false;
  *first = at;
  *last = std::min(at + team->step, team->end);
  return true;
}

bool start(long begin, long end, long step, long* first, long* last) {
  {
    const std::lock_guard<std::mutex> lock(team->mutex);
    if (!team->is_started) {
      team->is_started = true;
      team->next = begin;
      team->end = end;
      team->step = step;
    }
  }
  return take(first, last);
}

}  // namespace

extern "C" {

void GOMP_parallel(void (*region)(void*), void* data, unsigned wanted, unsigned) {
  Team here{wanted != 0 ? static_cast<int>(wanted) : threads()};
  Team* const outer = team;
  const int outer_number = number;
  const auto run = [&](int mine) {
    team = &here;
    number = mine;
    region(data);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < here.size; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& other : others) other.join();
  team = outer;
  number = outer_number;
}

bool GOMP_loop_nonmonotonic_dynamic_start(long begin, long end, long, long, long* first, long* last) {
  return start(begin, end, 1, first, last);
}
bool GOMP_loop_nonmonotonic_dynamic_next(long* first, long* last) { return take(first, last); }
bool GOMP_loop_dynamic_start(long begin, long end, long, long, long* first, long* last) {
  return start(begin, end, 1, first, last);
}
bool GOMP_loop_dynamic_next(long* first, long* last) { return take(first, last); }
void GOMP_loop_end() { team->barrier(); }
void GOMP_loop_end_nowait() {}
void GOMP_barrier() { team->barrier(); }

void GOMP_parallel_loop_nonmonotonic_dynamic(void (*region)(void*), void* data, unsigned wanted, long begin, long end,
                                             long, long, unsigned flags) {
  struct Loop {
    void (*region)(void*);
    void* data;
    long begin, end;
  } loop{region, data, begin, end};
  GOMP_parallel(
      [](void* given) {
        const Loop& loop = *static_cast<Loop*>(given);
        {
          const std::lock_guard<std::mutex> lock(team->mutex);
          if (!team->is_started) {
            team->is_started = true;
            team->next = loop.begin;
            team->end = loop.end;
            team->step = 1;
          }
        }
        loop.region(loop.data);
      },
      &loop, wanted, flags);
}

static std::mutex critical;
void GOMP_critical_start() { critical.lock(); }
void GOMP_critical_end() { critical.unlock(); }

int omp_get_thread_num() { return number; }
int omp_get_num_threads() { return team != nullptr ? team->size : 1; }
int omp_get_max_threads() { return threads(); }
int omp_in_parallel() { return team != nullptr; }
}
