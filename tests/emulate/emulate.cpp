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

/* A function of its own: none that calls __builtin_setjmp may do this.  It does not return, but
 * says so to nobody: before a call that does not return, AddressSanitizer clears its marks of the
 * whole stack, with a system call, and these calls are most of what an emulated kernel does. */
[[gnu::noipa, gnu::no_sanitize_address]] void go(place &to) { __builtin_longjmp(to, 1); }

/* Released once `arrived` reaches what is expected. */
struct barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct exchange {
  barrier meet;
  uint64_t given[WARP] = {};
  uint64_t all[WARP + 1] = {}; /* and which are not 0 */
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
place launcher;
thread *current;
const std::function<void()> *body;

/* The turns of a block's threads: sweeps over all of them, one forwards and the next backwards. */
struct turns {
  unsigned size, sweep, at; /* of the sweep's threads, `at` had their turn */
  unsigned ran;             /* of these, had something to do */
  unsigned left;            /* of all, are not done */
} turns;

bool can_run(const thread &t) {
  return !t.done && (t.waits == nullptr || t.waits->generation != t.generation);
}

/* What the next thread goes on with; the launcher's place when all are done. */
place &next() {
  while (turns.left > 0) {
    while (turns.at < turns.size) {
      unsigned i = turns.sweep % 2 == 0 ? turns.at : turns.size - 1 - turns.at;
      turns.at++;
      if (can_run(threads[i])) {
        turns.ran++;
        current = &threads[i];
        current->waits = nullptr;
        threadIdx = dim3(i, 0, 0);
        return current->context;
      }
    }
    if (turns.ran == 0) {
      std::fprintf(stderr, "emulated kernel: %u threads of block %u wait for ever\n", turns.left,
                   blockIdx.x);
      std::abort();
    }
    turns.sweep++;
    turns.at = turns.ran = 0;
  }
  return launcher;
}

/* Straight to the next, and back here: a turn through a scheduler would be two. */
[[gnu::noipa]] void leave(place &from, place &to) {
  if (__builtin_setjmp(from) == 0) {
    go(to);
  }
}

/* A thread's life: to here and back when it is made, then a kernel's body each time. */
void live() {
  thread *self = current;
  leave(self->context, launcher);
  for (;;) {
    (*body)();
    self->done = true;
    turns.left--;
    leave(self->context, next());
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
  current->waits = b;
  current->generation = generation;
  return false;
}

[[gnu::noipa]] void make_thread(thread *made) {
  static ucontext_t begin;
  made->stack.reset(new char[STACK]);
  current = made;
  getcontext(&begin);
  begin.uc_stack.ss_sp = made->stack.get();
  begin.uc_stack.ss_size = STACK - threads.size() % 64 * 64;
  begin.uc_link = nullptr;
  makecontext(&begin, live, 0);
  if (__builtin_setjmp(launcher) == 0) {
    setcontext(&begin);
  }
}

void run_block(unsigned size) {
  for (unsigned i = 0; i < size; i++) {
    threads[i].done = false;
    threads[i].waits = nullptr;
  }
  turns = {size, 0, 0, 0, size};
  leave(launcher, next());
}

}  // namespace

[[gnu::noipa]] void __syncthreads() {
  if (!arrive(&block_barrier, blockDim.x) && __builtin_setjmp(current->context) == 0) {
    go(next());
  }
}

[[gnu::noipa]] const uint64_t *weir_emulated_exchange(unsigned mask, uint64_t mine) {
  unsigned lane = weir_emulated_lane();
  if ((mask >> lane & 1U) == 0) {
    std::fprintf(stderr, "emulated kernel: lane %u is not in its own mask %#x\n", lane, mask);
    std::abort();
  }
  unsigned first = threadIdx.x - lane + (unsigned)__builtin_ctz(mask);
  exchange *meet = &exchanges[first];
  meet->given[lane] = mine;
  /* Whole warps are most; what counts bits may be a call. */
  unsigned expected = mask == 0xffffffffU ? WARP : (unsigned)__builtin_popcount(mask);
  if (arrive(&meet->meet, expected)) {
    unsigned bits = 0;
    for (unsigned i = 0; i < WARP; i++) {
      meet->all[i] = meet->given[i];
      bits |= (unsigned)(meet->given[i] != 0) << i;
    }
    meet->all[WARP] = bits & mask;
  } else if (__builtin_setjmp(current->context) == 0) {
    go(next());
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
