/* What a session takes of memory: nothing new in a step once it is under way, and beyond the
 * caller's gradients what weir_plan_memory says, by which weir_options.memory_limit goes.  This
 * program's malloc counts what passes through it, of whatever thread. */
#include <criterion/criterion.h>
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../sampled.h"
#include "engine/memory.h"
#include "ranks.h"
#include "session_ranks.h"

#define RANKS_MOST 17
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0 /* they bring a malloc of their own */
#else
#define COUNTS 1
#endif

#define TENSORS 6
#define ROWS (COUNTS ? 256 : 32) /* of every matrix; few where nothing is counted */
static const size_t numel[TENSORS] = {1000, ROWS * 511, ROWS * 511, 7, ROWS * 511, ROWS * 511};
#define N ((size_t)(1007 + 4 * ROWS * 511)) /* floats: 2 MiB of gradient, odd */
#define FIXED (576.0 * 1024) /* bytes, of any gradient: contexts, stages, stacks, libcrypto */
#define TRIALS 50 /* steps of all trials of policy paper, the first of which takes the most */
#define BEYOND 10 /* steps of what it then chooses */
#define STEPS 4   /* that are looked at; and as many before them */
#define AGAIN 10  /* times that they are, until one plan was in force in all */

/* --- the counting allocator ----------------------------------------------------------------- */

static atomic_bool counting;
static atomic_ullong taken; /* calls that gave memory while counting */

#if COUNTS
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static void *took(void *memory) {
  if (memory && atomic_load(&counting)) atomic_fetch_add(&taken, 1);
  return memory;
}

void *malloc(size_t bytes) { return took(__libc_malloc(bytes)); }
void *calloc(size_t count, size_t bytes) { return took(__libc_calloc(count, bytes)); }
void *aligned_alloc(size_t alignment, size_t bytes) {
  return took(__libc_memalign(alignment, bytes));
}
void *memalign(size_t alignment, size_t bytes) { return took(__libc_memalign(alignment, bytes)); }
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  *out = took(__libc_memalign(alignment, bytes));
  return *out ? 0 : ENOMEM;
}
void *realloc(void *memory, size_t bytes) { return took(__libc_realloc(memory, bytes)); }
void free(void *memory) { __libc_free(memory); }
#endif

/* --- a session's steps ---------------------------------------------------------------------- */

enum { ONE = 0, EVEN = 1, UNEVEN = 2 };

typedef struct course {
  const char *transport, *policy;
  int ranks;
  int machines;  /* EVEN: two of as many ranks; UNEVEN: two, the first has one more; else one */
  bool matrices; /* the long tensors are; else all are vectors */
  double momentum;
  double due;   /* bytes */
  bool settles; /* takes no memory any more when it is under way */
  char where[64];
  pthread_barrier_t *barrier; /* of threads; NULL: each rank is a process */
  struct {
    char failure[256];
    unsigned long long taken; /* of the process */
    long long resident;       /* more bytes that the process really has than before the session */
  } * result;                 /* one a rank, shared */
} course;

static void all_together(course *c) {
  if (c->barrier) (void)pthread_barrier_wait(c->barrier);
}

/* Bytes of memory of its own that the process really has; what was asked for and never touched is
 * not among them. */
static long long resident(void) {
  FILE *status = fopen("/proc/self/status", "r");
  char line[256];
  long long kib = 0;
  while (status && fgets(line, sizeof line, status))
    if (sscanf(line, "RssAnon: %lld kB", &kib) == 1) break;
  if (status) (void)fclose(status);
  return kib * 1024;
}

/* most: what was resident after any step.  Those before a division comes are no steps, and policy
 * paper has some behind its trials, which begin when the network is known.  plan: the last
 * step's. */
static bool train(const course *c, weir_session *session, float *const *gradient, int rank,
                  int steps, int from, long long *most, uint64_t *plan) {
  int tried = c->settles || !most ? TRIALS : 0;
  for (int s = from; s < from + steps; s++) {
    weir_step_info info = {.struct_size = sizeof info};
    /* Whoever's gradient varies most is VAR's root: every rank in its turn. */
    const float share = s % c->ranks == rank ? 2 : 1;
    for (size_t t = 0; t < TENSORS; t++)
      for (size_t i = 0; i < numel[t]; i++)
        gradient[t][i] = share * ((float)((i * 7919 + (size_t)(s * 31 + rank)) & 1023) - 511);
    if (weir_step_begin(session, &info) != WEIR_OK || s > 10000) return false;
    steps += (info.plan.buckets == 0 && strncmp(c->policy, "groups:", 7) == 0) || tried < TRIALS;
    tried += info.trial;
    *plan = info.plan.id;
    for (uint32_t t = 0; t < TENSORS; t++)
      if (weir_submit(session, t, gradient[t]) != WEIR_OK) return false;
    if (weir_step_end(session, NULL) != WEIR_OK) return false;
    const long long now = most ? resident() : 0;
    if (most && now > *most) *most = now;
  }
  return true;
}

static weir_session *open_session(const course *c, int rank) {
  weir_options options = session_options(rank, c->ranks, c->where, c->policy);
  weir_session *session = NULL;
  options.transport = c->transport;
  options.momentum_correction = c->momentum;
  options.timeout_s = 30;
  if (weir_session_create(&session, &options) != WEIR_OK) return NULL;
  bool good = true;
  for (size_t t = 0; good && t < TENSORS; t++) {
    const char name[] = {(char)('a' + t), '\0'};
    good = (c->matrices && numel[t] % ROWS == 0
                ? weir_register_matrix(session, name, ROWS, numel[t] / ROWS, NULL)
                : weir_register_tensor(session, name, numel[t], NULL)) == WEIR_OK;
  }
  if (good && weir_session_start(session) == WEIR_OK) return session;
  weir_session_free(session);
  return NULL;
}

/* Steps before it takes no memory any more; where roots change every rank has to have been one. */
static int settling(const course *c) {
  const bool roots = strstr(c->policy, ":star:") != NULL || strstr(c->policy, ":var:") != NULL;
  return !c->settles ? BEYOND : roots ? c->ranks : STEPS;
}

static void be_rank(course *c, int rank) {
  float *gradient[TENSORS];
  for (size_t t = 0; t < TENSORS; t++) gradient[t] = malloc(numel[t] * sizeof(float));
  all_together(c);
  for (size_t t = 0; t < TENSORS; t++) memset(gradient[t], 0, numel[t] * sizeof(float));
  const long long before = resident();
  all_together(c);
  weir_session *session = open_session(c, rank);
  const int steps = settling(c);
  long long most = 0;
  uint64_t plan = 0, now = 0;
  bool good = session && train(c, session, gradient, rank, steps, 0, &most, &plan);
  all_together(c);
  c->result[rank].resident = most - before;
  /* A plan that comes into force takes its memory then, and one that leaves its algorithm open does
   * so anew when another network is measured: steps are counted under one plan. */
  bool over = !good;
  for (int again = 0; again < AGAIN; again++) {
    const bool counts = !over && (rank == 0 || !c->barrier);
    all_together(c);
    if (counts) atomic_store(&taken, 0), atomic_store(&counting, true);
    all_together(c);
    if (!over) good = train(c, session, gradient, rank, STEPS, steps + again * STEPS, NULL, &now);
    all_together(c);
    if (counts) atomic_store(&counting, false);
    all_together(c);
    over = over || !good || now == plan;
    plan = now;
  }
  c->result[rank].taken = atomic_load(&taken);
  if (!good)
    (void)snprintf(c->result[rank].failure, sizeof c->result->failure, "no: %s", weir_last_error());
  else if (c->settles && !over)
    (void)snprintf(c->result[rank].failure, sizeof c->result->failure, "no plan stayed");
  all_together(c);
  weir_session_free(session);
  for (size_t t = 0; t < TENSORS; t++) free(gradient[t]);
}

typedef struct thread {
  course *c;
  int rank;
} thread;

static void *thread_main(void *argument) {
  be_rank(((thread *)argument)->c, ((thread *)argument)->rank);
  return NULL;
}

static void run_threads(course *c) {
  pthread_barrier_t barrier;
  pthread_t threads[RANKS_MOST];
  thread arguments[RANKS_MOST];
  (void)pthread_barrier_init(&barrier, NULL, (unsigned)c->ranks);
  c->barrier = &barrier;
  for (int r = 0; r < c->ranks; r++) {
    arguments[r] = (thread){c, r};
    if (pthread_create(&threads[r], NULL, thread_main, &arguments[r]) != 0) abort();
  }
  for (int r = 0; r < c->ranks; r++) (void)pthread_join(threads[r], NULL);
  (void)pthread_barrier_destroy(&barrier);
}

static void run_processes(course *c) {
  pid_t pid[RANKS_MOST];
  (void)fflush(NULL);
  for (int r = 0; r < c->ranks; r++) {
    (void)snprintf(c->result[r].failure, sizeof c->result->failure, "it ended without a word");
    pid[r] = fork();
    if (pid[r] < 0) abort();
    if (pid[r] > 0) continue;
    (void)alarm(100);
    c->result[r].failure[0] = '\0';
    if (c->machines != ONE)
      (void)setenv("WEIR_HOST", r < c->ranks / 2 + (c->machines == UNEVEN) ? "a" : "b", 1);
    be_rank(c, r);
    _exit(0);
  }
  for (int r = 0; r < c->ranks; r++) (void)waitpid(pid[r], NULL, 0);
}

/* --- the plans ------------------------------------------------------------------------------- */

#define GRADIENT ((double)(N * sizeof(float)))
/* What a plan is said to take and does not, gradients: it is said of the rank that has most to do,
 * and not every element is touched. */
#define SLACK 0.3

static void look_at(const course *c) {
  double most = 0;
  for (int r = 0; r < c->ranks; r++) {
    const double times = (double)c->result[r].resident / GRADIENT;
    most = fmax(most, times);
    cr_assert_str_empty(c->result[r].failure, "%s %s N %d rank %d: %s", c->transport, c->policy,
                        c->ranks, r, c->result[r].failure);
    if (!COUNTS) continue;
    cr_expect(!c->settles || c->result[r].taken == 0,
              "%s %s N %d rank %d: %llu allocations in %d steps", c->transport, c->policy, c->ranks,
              r, c->result[r].taken, STEPS);
    if (c->barrier) continue; /* what one process has is all ranks' */
    cr_log_info("%s %s N %d rank %d: %.3f gradients of %.3f\n", c->transport, c->policy, c->ranks,
                r, times, c->due / GRADIENT);
    cr_expect_leq(times, (c->due + FIXED) / GRADIENT, "%s %s N %d rank %d: %.3f gradients of %.3f",
                  c->transport, c->policy, c->ranks, r, times, c->due / GRADIENT);
  }
  if (COUNTS && !c->barrier)
    cr_expect_geq(most + SLACK, c->due / GRADIENT, "%s %s N %d: %.3f gradients of %.3f",
                  c->transport, c->policy, c->ranks, most, c->due / GRADIENT);
}

typedef struct arm {
  const char *policy;
  int machines;
  bool matrices;
  double momentum;
} arm;

/* Policy paper's trials take the most with mstopk; what they have kept beside them is the
 * checkpoint.  Matrices of rank 2 send 2 (rows + columns) floats each. */
static double due(const arm *a, int ranks) {
  const bool tries = strcmp(a->policy, "paper") == 0;
  const char *text = tries ? "mstopk:0.1:ag" : strchr(a->policy, ':') + 1;
  weir_plan plan;
  if (strncmp(a->policy, "groups:", 7) == 0) text = strchr(text, ':') + 1;
  cr_assert_eq(weir_plan_parse(text, &plan), WEIR_OK, "%s", weir_last_error());
  const weir_memory_form form = {.ranks = ranks,
                                 .hosts = a->machines == EVEN ? 2 : ranks,
                                 .leaders = a->machines == UNEVEN ? 2 : 0,
                                 .momentum = a->momentum > 0,
                                 .trials = tries};
  size_t kept = weir_cost_kept(&plan, N);
  if (plan.scheme == WEIR_SCHEME_LOW_RANK) kept = a->matrices ? 1007 + 4 * 2 * (ROWS + 511) : N;
  /* Every group's list of candidates has room for what was sampled. */
  const double samples = strncmp(a->policy, "groups:", 7) == 0 ? 4 * 64 * 1024.0 : 0;
  return weir_plan_memory(&plan, &form, N, kept) + samples;
}

static void check(const char *transport, int ranks, const arm *a) {
  course c = {.transport = transport,
              .policy = a->policy,
              .ranks = ranks,
              .machines = a->machines,
              .matrices = a->matrices,
              .momentum = a->momentum,
              .due = due(a, ranks),
              .settles = strcmp(a->policy, "paper") != 0};
  const size_t bytes = (size_t)ranks * sizeof *c.result;
  c.result = group_shared(bytes);
  if (strcmp(transport, "tcp") == 0)
    (void)snprintf(c.where, sizeof c.where, "127.0.0.1:%d", free_port());
  else
    (void)snprintf(c.where, sizeof c.where, "memory-%d-%.40s", (int)getpid(), a->policy);
  if (strcmp(transport, "inproc") == 0)
    run_threads(&c);
  else
    run_processes(&c);
  look_at(&c);
  (void)munmap(c.result, bytes);
}

/* Every kind of plan. */
#define VECTORS ONE, false, 0
#define MACHINES EVEN, false, 0
#define LOPSIDED UNEVEN, false, 0
#define MATRICES ONE, true, 0
#define MOMENTUM ONE, false, 0.9
static const arm arms[] = {
    {"fixed:none:1:dense-ring", VECTORS},
    {"fixed:none:1:dense-halving", VECTORS},
    {"fixed:none:1:dense-tree", VECTORS},
    {"fixed:none:1:dense-double-tree", VECTORS},
    {"fixed:none:1:dense-torus", VECTORS},
    {"fixed:none:1:dense-star", VECTORS},
    {"fixed:none:1:dense-hier-ring", MACHINES},
    {"fixed:none:1:dense-hier-halving", MACHINES},
    {"fixed:none:1:dense-hier-ring", LOPSIDED},
    {"fixed:none:1:dense-hier-tree", LOPSIDED},
    {"fixed:bf16:1:dense-hier-ring", LOPSIDED},
    {"fixed:bf16:1:dense-ring", VECTORS},
    {"fixed:bf16:1:dense-tree", VECTORS},
    {"fixed:bf16:1:dense-halving", VECTORS},
    {"fixed:bf16:1:dense-torus", VECTORS},
    {"fixed:bf16:1:dense-star", VECTORS},
    {"fixed:bf16:1:dense-double-tree", VECTORS},
    {"fixed:bf16:1:dense-hier-tree", MACHINES},
    {"fixed:bf16:1:dense-hier-double-tree", MACHINES},
    {"fixed:topk:0.01:ag:auto-bf16", VECTORS},
    {"fixed:mstopk:0.01:ag:auto-bf16", VECTORS},
    {"fixed:sidco:0.1:ag", VECTORS},
    {"fixed:sidco:0.03:ag", VECTORS},
    {"fixed:dgc:0.1:ag:auto-fp16", VECTORS},
    {"fixed:topk:0.1:ag", VECTORS},
    {"fixed:topk:0.9:ag", VECTORS},
    {"fixed:star:0.01:art-ring:auto-bf16", VECTORS},
    {"fixed:star:0.5:art-ring", VECTORS},
    {"fixed:var:0.9:art-tree:auto-fp32", VECTORS},
    {"fixed:var:0.01:art-tree", VECTORS},
    {"fixed:var:0.01:art-hier-ring:auto-bf16", MACHINES},
    {"fixed:randomk:0.01:art-ring", VECTORS},
    {"fixed:qsgd:0.125:ag", VECTORS},
    {"fixed:qsgd:0.25:ag", VECTORS},
    {"fixed:nonzero:0.125:ag", VECTORS},
    {"fixed:nonzero:0.25:ag", MOMENTUM},
    {"fixed:nonzero-bf16:0.5:ag", VECTORS},
    {"fixed:fp16:0.5:ag", VECTORS},
    {"fixed:onebit:0.03125:ag", VECTORS},
    {"fixed:qsgd:0.125:sra", VECTORS},
    {"fixed:fp16:0.5:sra", VECTORS},
    {"fixed:qsgd:0.125:hier-sra", MACHINES},
    {"fixed:fp16:0.5:hier-sra", MACHINES},
    {"fixed:qsgd:0.125:compressed-ring", VECTORS},
    {"fixed:fp16:0.5:compressed-ring", VECTORS},
    {"fixed:efsignsgd:0.03125:compressed-tree", VECTORS},
    {"fixed:fp16:0.5:compressed-tree", VECTORS},
    {"fixed:topk:0.01:hitopk:auto-bf16", MACHINES},
    {"fixed:topk:0.1:hitopk", MACHINES},
    {"fixed:topk:0.9:hitopk:auto-bf16", MACHINES},
    {"fixed:topk:0.3:hitopk", LOPSIDED},
    {"fixed:qsgd:0.125:hier-sra", LOPSIDED},
    {"fixed:qsgd:0.125:path=c.a2a.d.c.ag.d", VECTORS},
    {"fixed:topk:0.1:path=c.a2a.ag.d", VECTORS},
    {"fixed:none:1:path=r.b", VECTORS},
    {"fixed:qsgd:0.125:path=c.a2a.d.rs.ag.c.ag.d", MACHINES},
    {"fixed:topk:0.01:path=rs.c.ag.ag.d", MACHINES},
    {"fixed:fp16:0.5:path=c.g.d.c.g.d.c.b.d.c.b.d", MACHINES},
    {"fixed:none:1:path=rs.ar.ag", MACHINES},
    {"fixed:qsgd:0.125:path=c.a2a.a2a.ag.ag.d", LOPSIDED},
    {"groups:even=4:qsgd:0.125:path=c.a2a.d.c.ag.d", VECTORS},
    {"paper", VECTORS},
    {"fixed:topk:0.01:ag:auto-bf16", MOMENTUM},
    {"fixed:sidco:0.03:ag", MOMENTUM},
    {"fixed:topk:0.1:ag", MOMENTUM},
    {"fixed:star:0.01:art-ring:auto-bf16", MOMENTUM},
    {"fixed:star:0.5:art-ring:auto-fp32", MOMENTUM},
    {"fixed:randomk:0.01:art-ring", MOMENTUM},
    {"fixed:none:1:dense-ring", MOMENTUM},
    {"fixed:bf16:1:dense-ring", MOMENTUM},
    {"fixed:onebit:0.03125:ag", MOMENTUM},
    {"fixed:qsgd:0.125:ag", MOMENTUM},
    {"fixed:qsgd:0.125:sra", MOMENTUM},
    {"fixed:powersgd:2:dense-ring", MOMENTUM},
    {"fixed:powersgd:2:dense-ring", ONE, true, 0.9},
    {"paper", MOMENTUM},
    {"fixed:powersgd:2:dense-ring", MATRICES},
    {"fixed:powersgd:2:dense-ring:auto-bf16", MATRICES},
    {"fixed:powersgd:2:dense-sra", MATRICES},
    {"fixed:powersgd:2:dense-sra", VECTORS},
    {"fixed:powersgd:2:dense-one-shot", MATRICES},
    {"fixed:powersgd:2:dense-one-shot:huffman", MATRICES},
    {"fixed:powersgd:2:dense-one-shot", VECTORS},
    {"fixed:powersgd:2:dense-ring", VECTORS},
    {"fixed:dithered:0.125:ag", VECTORS},
    {"fixed:dithered:0.125:sra:huffman", MOMENTUM},
    {"fixed:whitened:0.125:ag", VECTORS},
    {"fixed:whitened:0.125:sra", VECTORS},
    {"fixed:whitened:0.125:sra:huffman", MOMENTUM},
    {"groups:even=4:whitened:0.125:sra", VECTORS},
    {"fixed:bilateral:2:dense-ring", MATRICES},
    {"fixed:bilateral:2:dense-sra", MATRICES},
    {"fixed:bilateral:2:dense-one-shot:huffman", MATRICES},
    {"fixed:bilateral:2:dense-sra", VECTORS},
    {"fixed:bilateral:2:dense-ring", ONE, true, 0.9},
    {"groups:even=4:bilateral:2:dense-sra", MATRICES},
    {"groups:even=4:none:1:dense-ring", VECTORS},
    {"groups:even=4:bf16:1:dense-tree", VECTORS},
    {"groups:even=4:topk:0.1:ag", VECTORS},
    {"groups:even=4:star:0.1:art-ring", VECTORS},
    {"groups:even=4:qsgd:0.125:ag", VECTORS},
    {"groups:even=4:fp16:0.5:ag", VECTORS},
    {"groups:even=4:qsgd:0.125:sra", VECTORS},
    {"groups:even=4:powersgd:2:dense-ring", MATRICES},
    {"groups:even=4:none:1:dense-ring", MOMENTUM},
    {"groups:even=4:powersgd:2:dense-ring", ONE, true, 0.9},
};

/* WEIR_MEMORY_ONLY: those policies that are looked at, instead of half of them all. */
static bool looked_at(const arm *a) {
  const char *only = getenv("WEIR_MEMORY_ONLY");
  return only == NULL ? sampled_of_dear(2) : strstr(a->policy, only) != NULL;
}

Test(memory, over_tcp) {
  for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
    if (looked_at(&arms[i])) check("tcp", 4, &arms[i]);
}

/* What grows with the ranks: messages that are gathered, and what machines of several ranks come
 * in. Of the others four ranks have shown what there is; the first is one of them, for what the
 * transport has of its own. */
Test(memory, with_eight_ranks) {
  for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
    if ((i == 0 || arms[i].machines != ONE || strstr(arms[i].policy, ":ag") != NULL) &&
        looked_at(&arms[i]))
      check("shm", 8, &arms[i]);
}

/* More ranks than a machine has processors, each with a message: as long as the gradient together,
 * and in buckets. */
Test(memory, with_many_ranks) {
  static const arm many[] = {{"fixed:terngrad:0.0625:ag", VECTORS},
                             {"groups:even=4:terngrad:0.0625:ag", VECTORS}};
  for (size_t i = 0; i < sizeof many / sizeof *many; i++) check("shm", 17, &many[i]);
}
