/* Coroutines for a block's threads; cuda_runtime.h says what is emulated. */
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr size_t STACK = 64 * 1024;
constexpr unsigned WARP = 32;
constexpr unsigned THREADS = 1024; /* of a block, at most */

/* Where to go on.  The compiler's builtins, for ThreadSanitizer takes setjmp and longjmp for its
 * own and knows nothing of other stacks; nor do they make a system call, as swapcontext does.
 * Callers may not keep anything in registers (noipa): another stack does not put them back. */
using place = void *[5];

/* A function of its own: none that calls __builtin_setjmp may do this.  It does not return, but says
 * so to nobody: before a call that does not return, AddressSanitizer clears its marks of the whole
 * stack, with a system call, and these calls are most of what an emulated kernel does. */
[[gnu::noipa, gnu::no_sanitize_address]] void go(place &to) { __builtin_longjmp(to, 1); }

/* Released once `arrived` reaches what is expected. */
struct barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct exchange {
  barrier meet;
  uint64_t given[WARP] = {};
  uint64_t all[WARP] = {};
};

struct thread {
  std::unique_ptr<char[]> stack;
  place context;
  bool done;
  const barrier *waits; /* until its generation is no longer this one */
  unsigned generation;
};

/* They last, block after block: with the last thread of a block nobody waits any more. */
std::vector<thread> threads;
std::vector<exchange> exchanges; /* one for each lowest lane of a mask */
barrier block_barrier;
place scheduler;
thread *current;
const std::function<void()> *body;

/* From a thread to the scheduler. */
[[gnu::noipa]] void leave(thread *self) {
  if (__builtin_setjmp(self->context) == 0) {
    go(scheduler);
  }
}

/* A thread's life: to here and back when it is made, then a kernel's body each time. */
void live() {
  thread *self = current;
  for (;;) {
    leave(self);
    (*body)();
    self->done = true;
  }
}

/* True for the one that came last, which goes on before the others do. */
bool arrive(barrier *b, unsigned expected) {
  unsigned generation = b->generation;
  if (++b->arrived == expected) {
    b->arrived = 0;
    b->generation++;
    return true;
  }
  thread *self = current;
  self->waits = b;
  self->generation = generation;
  leave(self);
  return false;
}

bool can_run(const thread &t) {
  return !t.done && (t.waits == nullptr || t.waits->generation != t.generation);
}

[[gnu::noipa]] void resume(unsigned i) {
  current = &threads[i];
  current->waits = nullptr;
  threadIdx = dim3(i, 0, 0);
  if (__builtin_setjmp(scheduler) == 0) {
    go(current->context);
  }
}

[[gnu::noipa]] void make_thread(thread *made) {
  static ucontext_t begin;
  made->stack.reset(new char[STACK]);
  current = made;
  getcontext(&begin);
  begin.uc_stack.ss_sp = made->stack.get();
  begin.uc_stack.ss_size = STACK;
  begin.uc_link = nullptr;
  makecontext(&begin, live, 0);
  if (__builtin_setjmp(scheduler) == 0) {
    setcontext(&begin);
  }
}

void run_block(unsigned size) {
  for (unsigned i = 0; i < size; i++) {
    threads[i].done = false;
    threads[i].waits = nullptr;
  }
  for (unsigned sweep = 0;; sweep++) {
    unsigned ran = 0;
    unsigned left = 0;
    for (unsigned i = 0; i < size; i++) {
      unsigned turn = sweep % 2 == 0 ? i : size - 1 - i;
      if (can_run(threads[turn])) {
        resume(turn);
        ran++;
      }
      left += !threads[turn].done;
    }
    if (left == 0) {
      return;
    }
    if (ran == 0) {
      std::fprintf(stderr, "emulated kernel: %u threads of block %u wait for ever\n", left,
                   blockIdx.x);
      std::abort();
    }
  }
}

}  // namespace

void __syncthreads() { (void)arrive(&block_barrier, blockDim.x); }

const uint64_t *weir_emulated_exchange(unsigned mask, uint64_t mine) {
  unsigned lane = weir_emulated_lane();
  if ((mask >> lane & 1U) == 0) {
    std::fprintf(stderr, "emulated kernel: lane %u is not in its own mask %#x\n", lane, mask);
    std::abort();
  }
  unsigned first = threadIdx.x - lane + (unsigned)__builtin_ctz(mask);
  exchange *meet = &exchanges[first];
  meet->given[lane] = mine;
  if (arrive(&meet->meet, (unsigned)__builtin_popcount(mask))) {
    std::memcpy(meet->all, meet->given, sizeof meet->all);
  }
  return meet->all;
}

void weir_emulated_run(const cudaLaunchConfig_t *config, const std::function<void()> &kernel) {
  unsigned size = config->blockDim.x;
  unsigned grid = config->gridDim.x;
  if (size == 0 || size > THREADS || grid == 0 || config->gridDim.y != 1 ||
      config->blockDim.y != 1) {
    std::fprintf(stderr, "emulated kernel: a grid of %u blocks of %u threads\n", grid, size);
    std::abort();
  }
  threads.reserve(THREADS); /* they stay where they are */
  while (threads.size() < size) {
    threads.emplace_back();
    make_thread(&threads.back());
  }
  exchanges.resize(threads.size());
  body = &kernel;
  blockDim = config->blockDim;
  gridDim = config->gridDim;
  for (unsigned b = 0; b < grid; b++) {
    blockIdx = dim3(b, 0, 0);
    run_block(size);
  }
}
