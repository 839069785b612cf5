/* The work whose times are fitted, and the clock; fit_run.h. */
#include "kernels/fit_run.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/base.h"
#include "kernels/bilateral.h"
#include "kernels/internal.h"
#include "kernels/powersgd.h"
#include "kernels/whitened.h"

/* So many different values; after them they repeat, and one draws no million of normals.  Primes,
 * so that no sample at equal distances sees always the same, and two, so that sums of gradient and
 * residual do not repeat: of equal ones a threshold takes many at a time. */
#define DRAWN ((size_t)16381)
#define DRAWN_RESIDUAL ((size_t)16363)
/* Either begins so much further on, at the most and as a share of all, and on some cache line: so
 * each run has its own. */
#define SHIFT_MOST ((size_t)4096)
#define SHIFT_SHARE 64
/* So far a run goes on in the list of all pairs of beginnings: a prime that is larger than how many
 * lines there are of either, so that each pair comes up before one does again. */
#define SHIFT_PAIRS ((size_t)80491)
#define HUGE_PAGE ((size_t)1 << 21)
#define PAGE ((size_t)1 << 12)
#define LINE 64
#define BATCH_MOST 64

/* A batch takes so long at the least, and some readings of a slow clock (a system call under an
 * emulator). */
static const double batch_s = 12e-6;
static const double batch_clocks = 2.0;

/* --- buffers ---------------------------------------------------------------------------------- */

/* Large ones in large pages where the system has them: they are there sooner, and a gradient's walk
 * through them costs what it costs in an engine's buffers after a while.  They begin as zeros that
 * nobody has touched. */
static bool is_large(size_t bytes) { return bytes >= HUGE_PAGE / 2; }
static size_t whole_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

static void *allocate(size_t bytes) {
  if (!is_large(bytes)) return calloc(bytes, 1);
  const size_t whole = whole_pages(bytes);
  char *memory =
      mmap(NULL, whole + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  const size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
  if (before > 0) (void)munmap(memory, before);
  (void)munmap(memory + before + whole, HUGE_PAGE - before);
  (void)madvise(memory + before, whole, MADV_HUGEPAGE); /* without, it is only slower */
  return memory + before;
}

static void release(void *memory, size_t bytes) {
  if (!is_large(bytes)) {
    free(memory);
  } else if (memory != NULL) {
    (void)munmap(memory, whole_pages(bytes));
  }
}

/* Lest the first to write there pay for the pages. */
static void touch(void *memory, size_t bytes) {
  volatile char *page = memory;
  for (size_t i = 0; i < bytes; i += PAGE) page[i] = 0;
}

static void repeat(const float *drawn, size_t period, float *x, size_t n) {
  for (size_t i = 0; i < n; i += period) {
    const size_t part = n - i < period ? n - i : period;
    memcpy(x + i, drawn, part * sizeof *x);
  }
}

/* Gradient and residual look like gradients.  The residual leaves out the first draws, which are no
 * whole lines: else two runs that swap their beginnings would have the same sum. */
static void fill(weir_kernel_probe *p) {
  float drawn[DRAWN];
  weir_rng rng = weir_rng_of(1);
  for (size_t i = 0; i < DRAWN; i++) drawn[i] = 1e-3F * (float)weir_rng_normal(&rng);
  repeat(drawn, DRAWN, p->g, p->most + SHIFT_MOST);
  repeat(drawn + DRAWN - DRAWN_RESIDUAL, DRAWN_RESIDUAL, p->r, p->most + SHIFT_MOST);
  touch(p->e, p->most * sizeof *p->e);
  touch(p->sum, p->most * sizeof *p->sum);
  touch(p->value, p->most * sizeof *p->value);
  touch(p->message, p->most * sizeof(uint16_t) + LINE); /* 16 bits an element, and a head */
}

double weir_kernel_now(const weir_kernel_probe *probe) {
  return probe->coarse ? weir_now_s() : weir_thread_cpu_s();
}

static double reading_takes(const weir_kernel_probe *p) {
  double least = INFINITY;
  for (int i = 0; i < 8; i++) {
    const double start = weir_kernel_now(p);
    least = fmin(least, weir_kernel_now(p) - start);
  }
  return least;
}

static void time_clock(weir_kernel_probe *p) {
  p->clock = reading_takes(p);
  p->coarse = !(p->clock > 0.0);
  if (p->coarse) p->clock = reading_takes(p);
}

double weir_kernel_since(const weir_kernel_probe *probe, double start) {
  return fmax(weir_kernel_now(probe) - start - probe->clock, 0.0);
}

static size_t float_bytes(const weir_kernel_probe *p) {
  return (p->most + SHIFT_MOST) * sizeof(float) + LINE;
}

weir_status weir_kernel_probe_create(weir_kernel_probe **out, size_t most) {
  weir_kernel_probe *p = calloc(1, sizeof *p);
  *out = NULL;
  if (p == NULL || most == 0 || most > SIZE_MAX / 64) {
    free(p);
    return weir_fail(WEIR_E_NOMEM, "no memory to time kernels on %zu elements", most);
  }
  p->most = most;
  p->room = 8 * most + 4096;
  float **const floats[] = {&p->g, &p->r, &p->e, &p->value, &p->sum};
  bool enough = true;
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
    *floats[i] = allocate(float_bytes(p));
    enough = enough && *floats[i] != NULL;
  }
  p->index = allocate(float_bytes(p));
  p->message = allocate(p->room);
  weir_status status = weir_codec_context_create(&p->context);
  if (!enough || !p->index || !p->message || status != WEIR_OK) {
    weir_kernel_probe_free(p);
    return weir_fail(WEIR_E_NOMEM, "no memory to time kernels on %zu elements", most);
  }
  fill(p);
  time_clock(p);
  /* Not the same at each start: few runs that are always the same say the same wrong thing. */
  p->shift = (uint64_t)(1e9 * weir_now_s());
  *out = p;
  return WEIR_OK;
}

void weir_kernel_probe_free(weir_kernel_probe *probe) {
  if (probe == NULL) return;
  void *const floats[] = {probe->g, probe->r, probe->e, probe->value, probe->sum, probe->index};
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
    release(floats[i], float_bytes(probe));
  release(probe->message, probe->room);
  weir_codec_context_free(probe->context);
  free(probe);
}

#if defined(__x86_64__)
void weir_kernel_evict(const void *from, size_t bytes) {
  const char *at = from;
  for (size_t i = 0; i < bytes; i += LINE) _mm_clflush(at + i);
  _mm_mfence();
}
#else
void weir_kernel_evict(const void *from, size_t bytes) {
  (void)from;
  (void)bytes;
}
#endif

/* --- a step ---------------------------------------------------------------------------------- */

weir_kernel_run weir_kernel_run_of(weir_kernel_probe *probe, const weir_plan *plan, size_t n) {
  return (weir_kernel_run){
      .probe = probe, .plan = plan, .codec = weir_codec_find(plan->codec), .offset = {0, n}};
}

/* On how many lines a gradient may begin, and its residual. */
static size_t beginnings(size_t n) {
  const size_t lines = n / SHIFT_SHARE * sizeof(float) / LINE;
  const size_t most = SHIFT_MOST * sizeof(float) / LINE;
  return 1 + (lines < most ? lines : most);
}

void weir_kernel_accumulate(weir_kernel_probe *probe, size_t n) {
  const size_t line = LINE / sizeof(float), each = beginnings(n), pairs = each * each;
  const size_t pair = (size_t)(++probe->shift % pairs) * SHIFT_PAIRS % pairs;
  weir_moments moments = {0};
  const float *g = probe->g + pair / each * line, *r = probe->r + pair % each * line;
  weir_ef_accumulate(g, r, probe->e, n, &moments);
}

double weir_kernel_touched(const weir_plan *plan) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  if (codec->dense && !codec->rounds) return 12.0;
  if (codec->rounds) { /* the message, and rounding's error */
    return WEIR_KERNEL_STEP_BYTES + sizeof(uint16_t) + sizeof(float);
  }
  return WEIR_KERNEL_STEP_BYTES + (codec->low_rank ? 0.0 : plan->cr * sizeof(float));
}

/* The elements as a matrix; its factors of `width` columns, p, and q behind it on a cache line of
 * its own, lie in value.  Of bilateral's the halves are B and P, R and Q (kernels/bilateral.c). */
typedef struct thin {
  size_t rows, columns, rank, width;
  float *p, *q;
} thin;

/* A gradient is many matrices as wide as layers are: more elements are more rows.  These are as
 * wide as a small layer where selections are small, and else as a large one. */
static bool find_thin(const weir_kernel_run *run, thin *t) {
  const size_t n = run->offset[1], whole = LINE / sizeof(float);
  t->columns = n < 4 * WEIR_SAMPLE ? 32 : 256;
  t->rows = n / t->columns;
  t->rank = weir_powersgd_rank(run->plan->cr);
  t->width = run->codec->at_once ? 2 * t->rank : t->rank;
  t->p = run->probe->value;
  t->q = run->probe->value + (t->width * t->rows + whole - 1) / whole * whole;
  return weir_powersgd_thins(t->rows, t->rows * t->columns, t->width);
}

static void forget(weir_kernel_run *run) {
  if (run->cold) {
    double start = weir_kernel_now(run->probe);
    weir_kernel_evict(run->probe->e, run->offset[1] * sizeof(float));
    run->apart += weir_kernel_now(run->probe) - start;
  }
}

static void compress_at_once(weir_kernel_run *run, const thin *t) {
  const weir_kernel_probe *probe = run->probe;
  float *const b = t->p, *const p = t->p + t->rank * t->rows, *const r = t->q,
               *const q = t->q + t->rank * t->columns;
  memcpy(b, probe->g, t->rank * t->rows * sizeof *b);
  memcpy(q, probe->g, t->rank * t->columns * sizeof *q);
  weir_powersgd_orthogonalise(b, t->rows, t->rank);
  weir_powersgd_orthogonalise(q, t->columns, t->rank);
  weir_powersgd_project(probe->e, t->rows, t->columns, q, t->columns, t->rank, p);
  forget(run);
  weir_powersgd_project_back(probe->e, t->rows, t->columns, b, t->rank, r);
  weir_bilateral_beside(b, t->rows, t->rank, p);
  forget(run);
  weir_powersgd_expand(t->p, t->rows, t->q, t->columns, t->width, probe->e, true);
}

static void compress_low_rank(weir_kernel_run *run) {
  const weir_kernel_probe *probe = run->probe;
  thin t;
  if (!find_thin(run, &t)) return;
  if (run->codec->at_once) {
    compress_at_once(run, &t);
    return;
  }
  weir_powersgd_project(probe->e, t.rows, t.columns, probe->g, t.columns, t.rank, t.p);
  weir_powersgd_orthogonalise(t.p, t.rows, t.rank);
  forget(run);
  weir_powersgd_project_back(probe->e, t.rows, t.columns, t.p, t.rank, t.q);
  forget(run);
  weir_powersgd_expand(t.p, t.rows, t.q, t.columns, t.rank, probe->e, true);
}

static weir_status compress_selection(weir_kernel_run *run, const weir_layout *layout) {
  weir_kernel_probe *p = run->probe;
  weir_status status =
      run->codec->draw != NULL
          ? run->codec->draw(p->context, layout, run->plan->cr, ++p->seed, p->index, p->most,
                             &run->k)
          : run->codec->select(p->context, p->e, layout, run->plan->cr, p->index, p->most, &run->k);
  if (status != WEIR_OK) return status;
  weir_gather(p->e, p->index, run->k, p->value);
  weir_scatter_zero(p->e, p->index, run->k);
  return run->codec->shared_indices ? WEIR_OK
                                    : weir_wire_encode(run->offset[1], p->index, p->value, run->k,
                                                       (weir_wire_format)run->plan->wire,
                                                       p->message, p->room, &run->bytes, NULL);
}

/* With what a step does besides, to the residual, the sum and what elements usually are. */
static weir_status compress_whitened(weir_kernel_run *run, const weir_layout *layout) {
  weir_kernel_probe *p = run->probe;
  uint16_t *const square = (uint16_t *)(void *)p->index;
  const size_t n = run->offset[1];
  weir_whiten(p->e, square, n);
  const weir_status status =
      weir_plan_encode(run->plan, p->context, p->e, layout, 1, p->message, p->room, &run->bytes);
  weir_unwhiten(p->e, square, n);
  weir_unwhiten(p->sum, square, n);
  weir_squares_follow(square, p->e, n);
  return status;
}

weir_status weir_kernel_compress(weir_kernel_run *run) {
  const weir_layout layout = {1, run->offset};
  weir_kernel_probe *p = run->probe;
  run->k = run->offset[1];
  run->bytes = 0;
  if (run->codec->low_rank) {
    compress_low_rank(run);
    return WEIR_OK;
  }
  if (run->codec->whitened) return compress_whitened(run, &layout);
  if (run->codec->encode != NULL) {
    return weir_plan_encode(run->plan, p->context, p->e, &layout, 1, p->message, p->room,
                            &run->bytes);
  }
  if (!run->codec->dense) return compress_selection(run, &layout);
  if (run->codec->rounds) {
    weir_bf16_encode(p->e, run->k, (uint16_t *)(void *)p->message, p->value);
    run->bytes = 2 * run->k;
  }
  return WEIR_OK;
}

weir_status weir_kernel_decode(weir_kernel_run *run) {
  const weir_layout layout = {1, run->offset};
  weir_kernel_probe *p = run->probe;
  thin t;
  if (run->codec->low_rank) {
    if (find_thin(run, &t))
      weir_powersgd_expand(t.p, t.rows, t.q, t.columns, t.width, p->sum, false);
    return WEIR_OK;
  }
  if (run->codec->encode != NULL)
    return run->codec->decode(p->context, p->message, run->bytes, &layout, p->sum, true);
  if (run->codec->rounds) {
    weir_bf16_decode((const uint16_t *)(const void *)p->message, run->k, p->sum);
  } else if (!run->codec->dense && run->codec->shared_indices) {
    weir_scatter_add(p->sum, p->index, p->value, run->k);
  } else if (!run->codec->dense) {
    return weir_wire_decode_add(p->context, p->message, run->bytes, run->offset[1], p->sum);
  }
  return WEIR_OK;
}

/* --- timing ---------------------------------------------------------------------------------- */

double weir_kernel_middle(const weir_kernel_three *three) {
  const double a = three->value[0], b = three->value[1], c = three->value[2];
  if (three->count < 3) return three->count < 2 ? a : fmin(a, b);
  return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

static int batch_for(const weir_kernel_probe *probe, double seconds) {
  double wanted = fmax(batch_s, batch_clocks * probe->clock);
  return (int)fmin(ceil(wanted / fmax(seconds, 1e-9)), BATCH_MOST);
}

weir_status weir_kernel_sample(weir_kernel_run *run, int batch[2], double seconds[2]) {
  const int times[2] = {batch[0] > 0 ? batch[0] : 1, batch[1] > 0 ? batch[1] : 1};
  weir_status status = WEIR_OK;
  double start = weir_kernel_now(run->probe);
  for (int i = 0; status == WEIR_OK && i < times[0]; i++) {
    weir_kernel_accumulate(run->probe, run->offset[1]);
    status = weir_kernel_compress(run);
  }
  seconds[0] = weir_kernel_since(run->probe, start) / times[0];
  start = weir_kernel_now(run->probe);
  for (int i = 0; status == WEIR_OK && i < times[1]; i++) status = weir_kernel_decode(run);
  seconds[1] = weir_kernel_since(run->probe, start) / times[1];
  for (int i = 0; i < 2; i++)
    batch[i] = batch[i] > 0 ? batch[i] : batch_for(run->probe, seconds[i]);
  return status;
}
