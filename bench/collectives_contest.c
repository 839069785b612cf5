/* Contenders take turns, so that whatever else goes on in the machine meets them all alike: at
 * every size first some looks at all rows, then loops over those that are measured, one of each in
 * every round.  A row that was slow at one size is looked at as well at the next: the fastest at
 * one end of the range is among the slowest at the other. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli.h"
#include "collectives.h"

#define LOOKS 3
#define LOOK_S 0.003 /* what a look shall at least last */
#define BEHIND 2.0   /* rows that take so many times the fastest's are looked at once */
#define LOOP_S 0.015 /* what a measured loop shall at least last */
#define LOOP_MAX 1000
#define LEAVE_S 10.0 /* for a contender's processes to end by themselves */

typedef struct answered {
  double seconds; /* the slowest rank's */
  guint64 wire, wrong;
  double error;
} answered;

/* --- processes ------------------------------------------------------------------------------ */

gboolean weir_bench_free_port(char *where, gsize room) {
  const int port = weir_free_port();
  (void)g_snprintf(where, (gulong)room, "127.0.0.1:%d", port);
  return port != 0;
}

gboolean weir_bench_spawn(contender *c, char **argv) {
  return c->processes < RANKS_MAX &&
         g_spawn_async(NULL, argv, NULL,
                       G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD |
                           G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL,
                       NULL, NULL, &c->pid[c->processes], NULL) &&
         ++c->processes > 0;
}

static gboolean all_ended(contender *c) {
  gboolean ended = TRUE;
  for (int i = 0; i < c->processes; i++)
    if (c->pid[i] > 0 && waitpid(c->pid[i], NULL, WNOHANG) != 0)
      c->pid[i] = 0;
    else if (c->pid[i] > 0)
      ended = FALSE;
  return ended;
}

/* Its ranks find their connection closed and end. */
static void dismiss(contender *c, int ranks) {
  for (int r = 0; r < ranks; r++) {
    if (c->fd[r] >= 0) (void)close(c->fd[r]);
    c->fd[r] = -1;
  }
  const double until_s = weir_now_s() + (*c->absent ? 1.0 : LEAVE_S);
  while (!all_ended(c) && weir_now_s() < until_s) g_usleep(5000);
  for (int i = 0; i < c->processes; i++) {
    if (c->pid[i] <= 0) continue;
    (void)kill(c->pid[i], c->peer || c->launched ? SIGTERM : SIGKILL); /* mpirun ends its ranks */
    (void)waitpid(c->pid[i], NULL, 0);
  }
  c->processes = 0;
}

/* --- talking to ranks ----------------------------------------------------------------------- */

/* A line, without its end; FALSE when the rank is gone or says nothing. */
static gboolean hear(int fd, char *line, gsize room) {
  const double deadline_s = weir_now_s() + BENCH_TIMEOUT_S;
  gsize at = 0;
  while (at + 1 < room) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    const int left_ms = (int)(1e3 * (deadline_s - weir_now_s()));
    if (left_ms <= 0) break;
    if (poll(&wait, 1, left_ms) < 0 && errno == EINTR) continue;
    if (read(fd, line + at, 1) != 1) break;
    if (line[at] == '\n') {
      line[at] = '\0';
      return TRUE;
    }
    at++;
  }
  line[at] = '\0';
  return FALSE;
}

/* All ranks do the same; FALSE and `absent` when one could not. */
static gboolean ask(contender *c, const bench_plan *p, guint32 row, gsize n, guint32 loop,
                    gboolean checks, answered *out) {
  char line[512];
  const int length =
      g_snprintf(line, sizeof line, "%u %" G_GSIZE_FORMAT " %u %d\n", row, n, loop, checks ? 1 : 0);
  *out = (answered){.seconds = 0.0};
  for (int r = 0; r < p->ranks; r++)
    (void)!send(c->fd[r], line, (size_t)length, MSG_NOSIGNAL); /* who is gone does not answer */
  for (int r = 0; r < p->ranks; r++) {
    answered a = {.seconds = 0.0};
    if (!hear(c->fd[r], line, sizeof line))
      (void)g_snprintf(c->absent, sizeof c->absent, "rank %d: it ended without saying why", r);
    else if (sscanf(line, "OK %lf %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %lf", &a.seconds,
                    &a.wire, &a.wrong, &a.error) != 4)
      (void)g_snprintf(c->absent, sizeof c->absent, "rank %d: %s", r,
                       g_str_has_prefix(line, "NO ") ? line + 3 : "it talks nonsense");
    if (*c->absent) return FALSE;
    out->seconds = MAX(out->seconds, a.seconds);
    out->wire = MAX(out->wire, a.wire);
    out->wrong += a.wrong;
    out->error = MAX(out->error, a.error);
  }
  return TRUE;
}

/* One rank that has connected: to its place, or why its contender takes no part. */
static void seat(contender *all, int count, const bench_plan *p, int fd) {
  char line[512];
  int number = -1, rank = -1, at = 0;
  const gboolean heard = hear(fd, line, sizeof line);
  const gboolean hello = heard && sscanf(line, "HELLO %d %d", &number, &rank) == 2;
  const gboolean sorry =
      heard && !hello && sscanf(line, "SORRY %d %d %n", &number, &rank, &at) == 2;
  const gboolean known = number >= 0 && number < count && rank >= 0 && rank < p->ranks;
  if (hello && known && all[number].fd[rank] < 0) {
    all[number].fd[rank] = fd;
    return;
  }
  if (sorry && known && !*all[number].absent)
    (void)g_snprintf(all[number].absent, sizeof all[number].absent, "rank %d: %s", rank, line + at);
  (void)close(fd);
}

static gboolean complete(const contender *c, int ranks) {
  for (int r = 0; r < ranks; r++)
    if (c->fd[r] < 0) return FALSE;
  return TRUE;
}

/* Start one contender and wait for its ranks. */
static void enter(contender *all, int count, int number, const bench_plan *p, int listener,
                  const char *path) {
  contender *c = &all[number];
  const double deadline_s = weir_now_s() + BENCH_TIMEOUT_S;
  gboolean ended = !c->start(c, p, path, number);
  while (!*c->absent && !complete(c, p->ranks)) {
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (poll(&wait, 1, 100) == 1) {
      const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
      if (fd >= 0) seat(all, count, p, fd);
    } else if (ended || weir_now_s() > deadline_s) {
      (void)g_strlcpy(c->absent, ended ? "its processes ended at once" : "its ranks did not come",
                      sizeof c->absent);
    } else {
      ended = all_ended(c);
    }
  }
}

/* --- measuring ------------------------------------------------------------------------------ */

static bench_cell *cell_of(const bench_plan *p, const contender *c, guint32 row, gsize size) {
  return &c->cells[row * p->sizes + size];
}

static guint32 loop_for(double each_s, double whole_s) {
  return each_s * LOOP_MAX <= whole_s ? LOOP_MAX : 1 + (guint32)(whole_s / each_s);
}

/* The first operation finds buffers and windows cold: it says how many others to time. */
static void look(contender *c, const bench_plan *p, guint32 row, gsize size, gboolean first) {
  bench_cell *cell = cell_of(p, c, row, size);
  const gsize n = p->elements[size];
  answered a;
  if (first) {
    cell->look = INFINITY;
    if (!ask(c, p, row, n, 1, FALSE, &a)) return;
    cell->look = a.seconds;
  }
  if (ask(c, p, row, n, loop_for(cell->look, LOOK_S), FALSE, &a))
    cell->look = MIN(cell->look, a.seconds);
}

/* All rows once, those near the fastest more often. */
static void look_over(contender *c, const bench_plan *p, gsize size, gboolean first) {
  double fastest = INFINITY;
  for (guint32 row = 0; row < ROWS_MAX && !first; row++)
    if (c->has_row(c, p, row)) fastest = MIN(fastest, cell_of(p, c, row, size)->look);
  for (guint32 row = 0; row < ROWS_MAX && !*c->absent; row++)
    if (c->has_row(c, p, row) && (first || cell_of(p, c, row, size)->look < BEHIND * fastest))
      look(c, p, row, size, first);
}

/* The rows to measure: all, or the fastest few.  Their sums are checked here. */
static void choose(contender *c, const bench_plan *p, gsize size) {
  for (int chosen = 0; p->best == 0 || chosen < p->best; chosen++) {
    bench_cell *fastest = NULL;
    guint32 which = 0;
    for (guint32 row = 0; row < ROWS_MAX; row++) {
      bench_cell *cell = cell_of(p, c, row, size);
      if (!c->has_row(c, p, row) || cell->chosen || !isfinite(cell->look)) continue;
      if (fastest && cell->look >= fastest->look) continue;
      fastest = cell;
      which = row;
    }
    answered a;
    if (!fastest || !ask(c, p, which, p->elements[size], 1, TRUE, &a)) return;
    fastest->chosen = TRUE;
    fastest->wire = a.wire;
    fastest->wrong = a.wrong;
    fastest->error = a.error;
  }
}

static void measure(contender *c, const bench_plan *p, gsize size, int repeat) {
  for (guint32 row = 0; row < ROWS_MAX && !*c->absent; row++) {
    bench_cell *cell = cell_of(p, c, row, size);
    answered a;
    if (!cell->chosen) continue;
    if (ask(c, p, row, p->elements[size], loop_for(cell->look, LOOP_S), FALSE, &a))
      cell->seconds[repeat] = a.seconds;
  }
}

/* One of Weir's own that fails ends it all. */
static gboolean go_on(const contender *all, int count) {
  for (int i = 0; i < count; i++)
    if (*all[i].absent && !all[i].peer) {
      fprintf(stderr, "weir bench collectives: %s, %s\n", all[i].name, all[i].absent);
      return FALSE;
    }
  return TRUE;
}

static gboolean take_turns(const bench_plan *p, contender *all, int count) {
  const double begin_s = weir_now_s();
  for (gsize size = 0; size < p->sizes; size++) {
    cli_progress("weir bench collectives", (double)size / (double)p->sizes, begin_s);
    for (int round = 0; round < LOOKS; round++)
      for (int i = 0; i < count; i++)
        if (!*all[i].absent) look_over(&all[i], p, size, round == 0);
    for (int i = 0; i < count; i++)
      if (!*all[i].absent) choose(&all[i], p, size);
    for (int repeat = 0; repeat < p->repeats && go_on(all, count); repeat++)
      for (int i = 0; i < count; i++) measure(&all[i], p, size, repeat);
    if (!go_on(all, count)) return FALSE;
  }
  cli_progress("weir bench collectives", 1, begin_s);
  return TRUE;
}

static int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  (void)g_strlcpy(address.sun_path, path, sizeof address.sun_path);
  if (fd >= 0 && strlen(path) < sizeof address.sun_path &&
      bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
      listen(fd, CONTENDERS_MAX * RANKS_MAX) == 0)
    return fd;
  if (fd >= 0) (void)close(fd);
  return -1;
}

gboolean weir_bench_contest(const bench_plan *p, contender *all, int count) {
  g_autofree char *folder = g_dir_make_tmp("weir-bench-XXXXXX", NULL);
  g_autofree char *path = folder ? g_build_filename(folder, "turns", NULL) : NULL;
  const int listener = path ? listen_at(path) : -1;
  if (listener < 0) fprintf(stderr, "weir bench collectives: no socket in a folder of its own\n");
  for (int i = 0; i < count; i++)
    for (int r = 0; r < RANKS_MAX; r++) all[i].fd[r] = -1;
  for (int i = 0; listener >= 0 && i < count; i++) {
    enter(all, count, i, p, listener, path);
    if (!go_on(all, count)) break;
  }
  /* Everybody is in: nothing shall be left if this is interrupted. */
  if (listener >= 0) (void)close(listener);
  if (path) (void)unlink(path);
  if (folder) (void)rmdir(folder);
  const gboolean good = listener >= 0 && go_on(all, count) && take_turns(p, all, count);
  for (int i = 0; i < count; i++) dismiss(&all[i], p->ranks);
  return good;
}

double weir_bench_median(const bench_plan *p, const bench_cell *c) {
  double sorted[REPEATS_MAX];
  memcpy(sorted, c->seconds, (gsize)p->repeats * sizeof *sorted);
  weir_sort(sorted, (size_t)p->repeats);
  return sorted[p->repeats / 2];
}
