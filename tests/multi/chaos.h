/* What test_stress*.c do to ranks, from outside of their processes: kill and stop them, reset their
 * connections, part them from all others; and the table of what came of it.  Over TCP rank r is at
 * 127.0.0.(r + 1), so that packets tell whose they are. */
#ifndef WEIR_TESTS_CHAOS_H
#define WEIR_TESTS_CHAOS_H

#include <linux/filter.h>
#include <math.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "ranks.h"
#include "stalls.h"
#include "traces.h"

enum { KILLED, FROZEN, PAUSED, CUT, PARTED, CHAOS_KINDS };
static const char *const chaos_kind[CHAOS_KINDS] = {"killed", "frozen", "paused", "cut off",
                                                    "parted"};
/* When it happens: before all are together, in any step, when the first steps measure the network,
 * in a trial, while survivors meet after another blow, while a rank joins, while the state is
 * saved. */
enum { AT_START, AT_STEP, AT_PROBE, AT_TRIAL, AT_SHRINK, AT_GROW, AT_SAVE, CHAOS_MOMENTS };
static const char *const chaos_moment[CHAOS_MOMENTS] = {"start",  "step", "probe", "trial",
                                                        "shrink", "join", "save"};

typedef struct blow {
  int victim, kind;
  double at_s;
  double pause_s; /* PAUSED and PARTED: it is over after so long */
  int peer;       /* CUT: its connections with this rank; -1: all */
} blow;

static inline bool chaos_passes(const blow *b) { return b->kind == PAUSED || b->kind == PARTED; }

/* What happens to a rank; NULL: nothing. */
static inline const blow *chaos_blow_of(const blow *blows, int count, int rank) {
  for (int i = 0; i < count; i++)
    if (blows[i].victim == rank) return &blows[i];
  return NULL;
}

/* Nobody has had to wait so long for it that it could be taken for lost. */
static inline bool chaos_harmless(const blow *blows, int count, double short_s) {
  return count == 1 && blows->kind == PAUSED && blows->pause_s <= short_s;
}

static inline uint32_t chaos_address(int rank) { return INADDR_LOOPBACK + (uint32_t)rank; }

/* Processes that want to run and may not make a machine stand still for them alone: each tells at
 * its end how long that was in all. */
static stalls *chaos_stalls;

static inline void chaos_waited(void) {
  unsigned long long ran = 0, waited = 0;
  FILE *file = fopen("/proc/self/schedstat", "re");
  const bool told = file && fscanf(file, "%llu %llu", &ran, &waited) == 2;
  if (file) (void)fclose(file);
  const double waited_s = told ? (double)waited * 1e-9 : 0;
  double worst_s = atomic_load(&chaos_stalls->worst_s);
  while (worst_s < waited_s &&
         !atomic_compare_exchange_weak(&chaos_stalls->worst_s, &worst_s, waited_s))
    continue;
}

/* --- sockets of another process --------------------------------------------------------------- */

/* Dissolving an established connection makes the kernel send a reset, whoever is using it. */
static inline void chaos_cut(int fd, uint32_t peer) {
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  struct sockaddr_in at;
  socklen_t length = sizeof at, room = sizeof(int);
  int type = 0;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &room) != 0 || type != SOCK_STREAM) return;
  if (getpeername(fd, (struct sockaddr *)&at, &length) != 0) return; /* it listens */
  if (peer && ntohl(at.sin_addr.s_addr) != peer) return;
  (void)syscall(SYS_connect, fd, &nobody, sizeof nobody);
}

/* Whatever is from or to that address does not arrive. */
static inline void chaos_part(int fd, uint32_t address) {
  struct sock_filter drop[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + 12),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, address, 2, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + 16),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, address, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
  };
  const struct sock_fprog program = {sizeof drop / sizeof *drop, drop};
  (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static inline void chaos_heal(int fd, uint32_t address) {
  const int none = 0;
  (void)address;
  (void)setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
}

/* Of one's own child; one that has ended has none. */
static inline void chaos_sockets(pid_t pid, void (*act)(int fd, uint32_t address),
                                 uint32_t address) {
  char path[64];
  const int process = (int)syscall(SYS_pidfd_open, pid, 0);
  (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *folder = process < 0 ? NULL : opendir(path);
  for (const struct dirent *e; folder && (e = readdir(folder)) != NULL;) {
    int domain = 0;
    socklen_t length = sizeof domain;
    if (e->d_name[0] == '.') continue;
    const int fd = (int)syscall(SYS_pidfd_getfd, process, atoi(e->d_name), 0);
    if (fd < 0) continue;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_INET)
      act(fd, address);
    (void)close(fd);
  }
  if (folder) (void)closedir(folder);
  if (process >= 0) (void)close(process);
}

/* --- blows ------------------------------------------------------------------------------------ */

/* Strike, and see that it has struck. */
static inline void chaos_strike(const blow *b, const pid_t *pid, int size) {
  siginfo_t info;
  const pid_t victim = pid[b->victim];
  if (b->kind == CUT) chaos_sockets(victim, chaos_cut, b->peer < 0 ? 0 : chaos_address(b->peer));
  for (int r = 0; b->kind == PARTED && r < size; r++)
    chaos_sockets(pid[r], chaos_part, chaos_address(b->victim));
  if (b->kind == CUT || b->kind == PARTED) return;
  (void)kill(victim, b->kind == KILLED ? SIGKILL : SIGSTOP);
  (void)waitid(P_PID, (id_t)victim, &info,
               WNOWAIT | (b->kind == KILLED ? WEXITED : WEXITED | WSTOPPED));
}

/* For as long as a blow lasts, with sockets that are new meanwhile. */
static inline void chaos_last(const blow *b, const pid_t *pid, int size) {
  const double until_s = weir_now_s() + b->pause_s;
  if (!chaos_passes(b)) return;
  while (b->kind == PARTED && weir_now_s() < until_s) {
    group_nap(fmin(0.02, fmax(0, until_s - weir_now_s())));
    for (int r = 0; r < size; r++) chaos_sockets(pid[r], chaos_part, chaos_address(b->victim));
  }
  group_nap(fmax(0, until_s - weir_now_s()));
  if (b->kind == PAUSED) (void)kill(pid[b->victim], SIGCONT);
  for (int r = 0; b->kind == PARTED && r < size; r++) chaos_sockets(pid[r], chaos_heal, 0);
}

/* A rank 0 that is lost before all have come leaves its group's name, and the next one takes it. */
static inline void chaos_sweep(void) {
  DIR *folder = opendir("/dev/shm");
  for (const struct dirent *e; folder && (e = readdir(folder)) != NULL;)
    if (strncmp(e->d_name, "weir-", 5) == 0) (void)shm_unlink(e->d_name);
  if (folder) (void)closedir(folder);
}

/* --- the table -------------------------------------------------------------------------------- */

typedef struct chaos_times {
  int rounds;
  double found_s; /* from the blow until the last survivor knew, at the most */
  double call_s;  /* the longest call to start, go on or take others in */
} chaos_times;
static chaos_times chaos_table[CHAOS_MOMENTS][CHAOS_KINDS];

static inline void chaos_count(int moment, int kind, double found_s, double call_s) {
  chaos_times *t = &chaos_table[moment][kind];
  t->rounds++;
  t->found_s = fmax(t->found_s, found_s);
  t->call_s = fmax(t->call_s, call_s);
}

static inline void chaos_print(void) {
  fprintf(stderr, "moment  kind     rounds  known after, s  longest call, s\n");
  for (int m = 0; m < CHAOS_MOMENTS; m++)
    for (int k = 0; k < CHAOS_KINDS; k++)
      if (chaos_table[m][k].rounds > 0)
        fprintf(stderr, "%-7s %-8s %6d %15.2f %16.2f\n", chaos_moment[m], chaos_kind[k],
                chaos_table[m][k].rounds, chaos_table[m][k].found_s, chaos_table[m][k].call_s);
}

/* --- rounds ----------------------------------------------------------------------------------- */

typedef struct chaos_verdict {
  bool right;
  bool never; /* whatever the machine did, this must not be */
  char text[512];
} chaos_verdict;

typedef struct chaos_game {
  const char *name;
  uint64_t rounds; /* unless the environment says otherwise */
  size_t bytes;    /* of a round, which is in memory shared with the ranks */
  /* Draws the round and plays it; *moment: of the blow. */
  chaos_verdict (*play)(void *round, uint64_t seed, uint64_t number, stalls *w, int *moment);
  void (*describe)(const void *round, uint64_t number, char *text, size_t room);
  double linger_s; /* until what killed ranks leave behind has ended */
} chaos_game;

/* A round that fails while the machine stood still says nothing and is played again, unless what it
 * shows must not be at any speed.  Returns how often that was. */
static inline int chaos_round(const chaos_game *game, uint64_t seed, uint64_t number, bool alone,
                              stalls *w) {
  void *round = group_shared(game->bytes);
  char what[512];
  for (int again = 0;; again++) {
    int moment = AT_STEP;
    atomic_store(&w->worst_s, 0.0);
    const chaos_verdict v = game->play(round, seed, number, w, &moment);
    const double stall_s = atomic_load(&w->worst_s);
    game->describe(round, number, what, sizeof what);
    cr_assert(v.right || (!v.never && stall_s >= STALLS_LONGEST_S && again < 20),
              "seed %llu, %s: %s (the machine stood still for %.2f s)", (unsigned long long)seed,
              what, v.text, stall_s);
    if (alone && moment == AT_START) chaos_sweep();
    cr_assert(!alone || traces_named_segments() == 0, "seed %llu, %s: shared memory is left behind",
              (unsigned long long)seed, what);
    if (v.right) {
      (void)munmap(round, game->bytes);
      return again;
    }
    if (getenv("WEIR_STRESS_ROUNDS"))
      fprintf(stderr, "played again after %.2f s: %s: %s\n", stall_s, what, v.text);
  }
}

static inline void chaos_rounds(const chaos_game *game) {
  const uint64_t seed = stalls_asked("WEIR_STRESS_SEED", 1),
                 only = stalls_asked("WEIR_STRESS_ONLY", UINT64_MAX);
  const uint64_t first = only == UINT64_MAX ? 0 : only;
  const uint64_t end =
      only == UINT64_MAX ? stalls_asked("WEIR_STRESS_ROUNDS", game->rounds) : only + 1;
  const bool alone = traces_isolate();
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a rank leaves would come to this process */
  stalls *w = chaos_stalls = stalls_start();
  traces_settle();
  const traces own = traces_now();
  const double begun_s = weir_now_s();
  int repeated = 0;
  for (uint64_t i = first; i < end; i++) repeated += chaos_round(game, seed, i, alone, w);
  cr_assert_eq(traces_check(&own), WEIR_OK, "%s", weir_last_error());
  stalls_stop(w);
  const double until_s = weir_now_s() + game->linger_s;
  pid_t left = waitpid(-1, NULL, WNOHANG);
  for (; left >= 0 && weir_now_s() < until_s; left = waitpid(-1, NULL, WNOHANG)) group_nap(0.01);
  cr_assert_eq(left, -1, "a process is left behind");
  if (getenv("WEIR_STRESS_ROUNDS") || only != UINT64_MAX)
    fprintf(stderr, "stress: seed %llu, %llu rounds of %s in %.0f s, %d played again%s\n",
            (unsigned long long)seed, (unsigned long long)(end - first), game->name,
            weir_now_s() - begun_s, repeated, alone ? "" : " (not alone)");
  if (getenv("WEIR_STRESS_ROUNDS")) chaos_print();
}

#endif
