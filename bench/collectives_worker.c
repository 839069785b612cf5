/* One rank of a contender.  A line tells what to do, a line answers:
 *
 *   "ROW ELEMENTS LOOP CHECK"  ->  "OK SECONDS WIRE WRONG ERROR" or "NO why"
 *
 * CHECK 1: one operation on numbers whose sums are known; 0: LOOP operations, timed. */
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives.h"
#include "collectives/patterns/patterns.h"

/* --- data ----------------------------------------------------------------------------------- */

/* Small whole numbers: their sums are exact in every order, in bf16 too. */
static float value_at(int rank, gsize i) { return (float)(rank + (int)(i % 8)); }

/* In [-1, 1), so that the range of a sum's bucket is known: what is encoded. */
static double drawn_at(int rank, gsize i) {
  weir_rng rng = weir_rng_of(((guint64)rank << 32) + i);
  return 2.0 * weir_rng_uniform(&rng) - 1.0;
}

/* What element i must be afterwards; FALSE where nothing is promised. */
static gboolean due_at(const bench_rank *r, gsize n, gsize i, float *due) {
  const int rank = r->rank, size = r->size;
  const gsize block = n / (gsize)size;
  const weir_chunk own = weir_ring_chunk(n, size, rank);
  const gboolean sums =
      r->kind == BENCH_ALLREDUCE || r->kind == BENCH_REDUCE || r->kind == BENCH_REDUCE_SCATTER;
  *due = sums ? (float)(size * (size - 1) / 2 + size * (int)(i % 8)) : value_at(0, i);
  if (r->kind == BENCH_REDUCE_SCATTER) return i >= own.begin && i < own.begin + own.count;
  if (sums || r->kind == BENCH_BROADCAST) return r->kind != BENCH_REDUCE || rank == 0;
  if (i >= block * (gsize)size) return FALSE; /* what is left over of blocks of one length */
  *due = value_at((int)(i / block), i);
  return r->kind != BENCH_GATHER || rank == 0;
}

/* Own values; -1 where others' shall come. */
static void fill(bench_rank *r, gsize n) {
  const gsize block = n / (gsize)r->size;
  for (gsize i = 0; i < n; i++) {
    if (r->kind == BENCH_COMPRESSED) {
      r->x[i] = (float)drawn_at(r->rank, i);
      continue;
    }
    const gboolean blocks = r->kind == BENCH_ALLGATHER || r->kind == BENCH_GATHER;
    const gboolean theirs =
        (blocks && i / block != (gsize)r->rank) || (r->kind == BENCH_BROADCAST && r->rank != 0);
    r->x[i] = theirs ? -1.0f : value_at(r->rank, i);
    r->y[i] = -1.0f;
  }
}

gboolean weir_bench_rank_open(bench_rank *r) {
  r->x = calloc(r->most, sizeof *r->x);
  r->y = calloc(r->most, sizeof *r->y);
  r->error = calloc(r->most, sizeof *r->error);
  if (r->x && r->y && r->error) return TRUE;
  (void)g_snprintf(r->message, sizeof r->message, "no memory for %" G_GSIZE_FORMAT " floats",
                   r->most);
  return FALSE;
}

void weir_bench_rank_close(bench_rank *r) {
  free(r->error);
  free(r->y);
  free(r->x);
}

/* --- what is asked -------------------------------------------------------------------------- */

/* No element is encoded more often than there are ranks, and once more as a sum; an encoding errs
 * at most by a step of its grid, of which a sum of N values is at most 2 N / (2^bits - 1). */
static double judge_rounded(const bench_rank *r, gsize n, guint64 *wrong) {
  const double most = (r->size + 1) * 2.0 * r->size / ((1u << r->bits) - 1);
  double errors = 0.0, squares = 0.0;
  for (gsize i = 0; i < n; i++) {
    double sum = 0.0;
    for (int rank = 0; rank < r->size; rank++) sum += drawn_at(rank, i);
    const double off = (double)r->x[i] - sum;
    if (!(fabs(off) <= most)) ++*wrong;
    errors += off * off;
    squares += sum * sum;
  }
  return squares > 0.0 ? sqrt(errors / squares) : 0.0;
}

static gboolean check(bench_rank *r, guint32 row, gsize n, guint64 *wire, guint64 *wrong,
                      double *error) {
  fill(r, n);
  const guint64 before = r->sent ? r->sent(r) : 0;
  if (!r->once(r, row, n)) return FALSE;
  *wire = r->sent ? r->sent(r) - before : 0;
  *wrong = 0;
  const float *result = r->apart ? r->y : r->x;
  if (r->kind == BENCH_COMPRESSED) *error = judge_rounded(r, n, wrong);
  for (gsize i = 0; i < n && r->kind != BENCH_COMPRESSED; i++) {
    float due;
    if (due_at(r, n, i, &due) && result[i] != due) ++*wrong;
  }
  /* What is timed sums zeros, which never grow; or encodes the same numbers again and again. */
  if (r->kind == BENCH_COMPRESSED)
    for (gsize i = 0; i < n; i++) r->y[i] = (float)drawn_at(r->rank, i);
  else
    memset(r->x, 0, n * sizeof *r->x);
  return TRUE;
}

static gboolean loop_of(bench_rank *r, guint32 row, gsize n, guint32 loop, double *seconds) {
  if (!r->together(r)) return FALSE;
  const double begin_s = weir_now_s();
  for (guint32 i = 0; i < loop; i++) {
    if (r->kind == BENCH_COMPRESSED) memcpy(r->x, r->y, n * sizeof *r->x);
    if (!r->once(r, row, n)) return FALSE;
  }
  *seconds = (weir_now_s() - begin_s) / loop;
  return TRUE;
}

static gboolean answer(bench_rank *r, const char *line, FILE *out) {
  guint row = 0, loop = 0, checks = 0;
  gsize n = 0;
  guint64 wire = 0, wrong = 0;
  double seconds = 0.0, error = 0.0;
  gboolean good = sscanf(line, "%u %" G_GSIZE_FORMAT " %u %u", &row, &n, &loop, &checks) == 4 &&
                  n > 0 && n <= r->most && loop > 0;
  if (!good)
    (void)g_strlcpy(r->message, "it was asked what makes no sense", sizeof r->message);
  else
    good = checks ? check(r, row, n, &wire, &wrong, &error) : loop_of(r, row, n, loop, &seconds);
  if (good)
    fprintf(out, "OK %.9g %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %.9g\n", seconds, wire, wrong,
            error);
  else
    fprintf(out, "NO %s\n", r->message);
  return fflush(out) == 0 && good;
}

/* --- the connection ------------------------------------------------------------------------- */

static int call_home(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  (void)g_strlcpy(address.sun_path, path, sizeof address.sun_path);
  if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
  if (fd >= 0) (void)close(fd);
  return -1;
}

int weir_bench_serve(bench_rank *r, const char *path, int number) {
  const int fd = call_home(path);
  FILE *in = fd >= 0 ? fdopen(fd, "r") : NULL;
  FILE *out = in ? fdopen(dup(fd), "w") : NULL;
  char line[128];
  if (!out) {
    if (in) (void)fclose(in);
    return 1;
  }
  fprintf(out, "HELLO %d %d\n", number, r->rank);
  gboolean good = fflush(out) == 0;
  while (good && fgets(line, sizeof line, in)) good = answer(r, line, out);
  (void)fclose(out);
  (void)fclose(in);
  return good ? 0 : 1;
}

void weir_bench_excuse(const char *path, int number, int rank, const char *why) {
  const int fd = call_home(path);
  if (fd < 0) return;
  g_autofree char *line = g_strdup_printf("SORRY %d %d %s\n", number, rank, why);
  (void)!write(fd, line, strlen(line));
  (void)close(fd);
}
