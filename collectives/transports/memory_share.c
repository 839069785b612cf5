/* How the ranks of a machine come to share memory, once the group has met over whatever connects
 * it.
 *
 * The first rank of each machine makes a segment without a name and tells the others its
 * descriptor, which they open through /proc: the kernel lets nobody do so who might not read this
 * process's memory anyway, and nothing is left behind, whoever dies.  What is told comes over the
 * group's connections, so it is trusted as much as they are, and nobody has to be waited for who
 * has not met already.  A machine shares its memory when all of its ranks could open the segment;
 * else its messages travel as before, and those who could not say why. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "collectives/transports/memory.h"

#define RING_MAX ((size_t)512 * 1024)
#define RING_MIN ((size_t)4 * 1024)
#define RINGS_BYTES ((size_t)32 * 1024 * 1024) /* all rings of a machine, about */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)    /* or a read behind its end would be a SIGBUS */

/* What a rank tells all others, in its machine's order of bytes: of use to ranks of that alone. */
typedef struct word {
  uint64_t nonce; /* lies at the segment's begin */
  int32_t pid, fd;
  uint32_t made; /* there is a segment */
  uint32_t open; /* it is open here */
} word;
_Static_assert(sizeof(word) == 24, "a word has no padding");

typedef struct sharing {
  weir_transport *t;
  int streams;         /* connections of each two ranks */
  const char *between; /* what carries messages where no memory does, in the words of the log */
  const int *machine;  /* of each rank */
  word *all;
  double deadline_s;
  int first, ranks, place; /* of this machine: its first rank, how many, this one's place */
  size_t ring_bytes, bytes;
  int fd; /* -1: none */
  weir_machine_memory shared;
} sharing;

/* --- the segment ------------------------------------------------------------------------------ */

/* Behind a line with the nonce: a ring for each stream from each rank of the machine to each
 * other. */
static void lay_out(sharing *s) {
  const size_t ranks = (size_t)s->ranks, rings = ranks * (ranks - 1) * (size_t)s->streams;
  s->ring_bytes = RING_MAX;
  while (s->ring_bytes > RING_MIN && s->ring_bytes * rings > RINGS_BYTES) s->ring_bytes /= 2;
  s->bytes = sizeof(weir_memory_ring) + rings * (sizeof(weir_memory_ring) + s->ring_bytes);
}

static weir_memory_ring *ring_at(const sharing *s, int stream, int from, int to) {
  const size_t others = (size_t)s->ranks - 1, at = (size_t)(to > from ? to - 1 : to);
  const size_t ring = ((size_t)stream * (others + 1) + (size_t)from) * others + at;
  return (weir_memory_ring *)(void *)((unsigned char *)s->shared.segment +
                                      sizeof(weir_memory_ring) +
                                      ring * (sizeof(weir_memory_ring) + s->ring_bytes));
}

static weir_status failed(const char *what) {
  return weir_fail(WEIR_E_UNSUPPORTED, "cannot %s: %s", what, strerror(errno));
}

static weir_status map(sharing *s) {
  void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
  if (at == MAP_FAILED) return failed("map memory to share");
  s->shared.segment = at;
  s->shared.bytes = s->bytes;
  return WEIR_OK;
}

static weir_status create(sharing *s, word *mine) {
  s->fd = memfd_create("weir", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (s->fd < 0) return failed("make memory to share");
  errno = posix_fallocate(s->fd, 0, (off_t)s->bytes); /* or a write may be a SIGBUS */
  if (errno != 0) return failed("have as much memory to share");
  if (fcntl(s->fd, F_ADD_SEALS, SEALS) != 0) return failed("seal memory to share");
  if (getrandom(&mine->nonce, sizeof mine->nonce, 0) != (ssize_t)sizeof mine->nonce)
    return failed("draw a number");
  const weir_status status = map(s);
  if (status != WEIR_OK) return status;
  memcpy(s->shared.segment, &mine->nonce, sizeof mine->nonce);
  mine->pid = (int32_t)getpid();
  mine->fd = s->fd;
  mine->made = 1;
  return WEIR_OK;
}

/* That descriptor of that process, if it is what was meant: where two machines go by one name, or
 * processes do not see each other, it may be anything. */
static weir_status attach(sharing *s, const word *first) {
  char path[64];
  struct stat found;
  if (!first->made)
    return weir_fail(WEIR_E_UNSUPPORTED, "rank %d has made no memory to share", s->first);
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)first->pid, (int)first->fd);
  s->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (s->fd < 0) return failed("open the memory of this machine's first rank");
  const int seals = fcntl(s->fd, F_GET_SEALS); /* -1, which has all bits: a file without any */
  const bool fits = fstat(s->fd, &found) == 0 && S_ISREG(found.st_mode) &&
                    (size_t)found.st_size == s->bytes && seals >= 0 && (seals & SEALS) == SEALS;
  const weir_status status = fits ? map(s) : WEIR_OK;
  if (status != WEIR_OK) return status;
  if (fits && memcmp(s->shared.segment, &first->nonce, sizeof first->nonce) == 0) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "rank %d's memory is not on this rank's machine", s->first);
}

/* --- the connections -------------------------------------------------------------------------- */

/* This rank's side of each, all of it made before the others are told that it is there. */
static weir_status prepare(sharing *s) {
  const int size = s->t->size, rank = s->t->rank;
  s->shared.memory = calloc((size_t)(s->streams * size), sizeof *s->shared.memory);
  if (!s->shared.memory) return weir_fail(WEIR_E_NOMEM, "no memory for %d connections", size);
  for (int r = 0, place = 0; r < size; r++) {
    if (s->machine[r] != s->machine[rank]) continue;
    for (int stream = 0; r != rank && stream < s->streams; stream++)
      s->shared.memory[stream * size + r] =
          (weir_memory){.out = ring_at(s, stream, s->place, place),
                        .in = ring_at(s, stream, place, s->place),
                        .ring_bytes = s->ring_bytes,
                        .bell = -1};
    place++;
  }
  return WEIR_OK;
}

/* --- agreeing --------------------------------------------------------------------------------- */

static weir_status tell(sharing *s, uint32_t op) {
  static const char name[] = "weir shared memory";
  const weir_tag tag = {.plan = weir_hash(WEIR_HASH_INIT, name, sizeof name), .op = op};
  return weir_transport_tell(s->t, &tag, s->all, sizeof *s->all, s->deadline_s);
}

static bool all_open(const sharing *s, int machine) {
  for (int r = 0; r < s->t->size; r++)
    if (s->machine[r] == machine && s->all[r].open != 1) return false;
  return true;
}

static int ranks_of(const sharing *s, int machine) {
  int ranks = 0;
  for (int r = 0; r < s->t->size; r++) ranks += s->machine[r] == machine;
  return ranks;
}

/* Does any machine share its memory?  All ranks come to the same answer. */
static bool any_shares(const sharing *s) {
  for (int r = 0; r < s->t->size; r++)
    if (ranks_of(s, s->machine[r]) > 1 && all_open(s, s->machine[r])) return true;
  return false;
}

static void find_place(sharing *s) {
  const int rank = s->t->rank, machine = s->machine[rank];
  s->ranks = ranks_of(s, machine);
  s->first = 0;
  while (s->machine[s->first] != machine) s->first++;
  s->place = 0;
  for (int r = 0; r < rank; r++) s->place += s->machine[r] == machine;
}

static void say_why_not(const sharing *s) {
  weir_log(WEIR_LOG_INFO, "the %d ranks of this machine exchange messages over %s: %s", s->ranks,
           s->between, weir_last_error());
}

/* This rank's part of it; what fails goes into its word. */
static void open_memory(sharing *s, word *mine) {
  const bool made = s->place == 0;
  weir_status status = made ? WEIR_OK : attach(s, &s->all[s->first]);
  if (made && !mine->made) return; /* and it has said why */
  if (status == WEIR_OK) status = prepare(s);
  mine->open = status == WEIR_OK;
  if (status != WEIR_OK) say_why_not(s);
}

static weir_status share(sharing *s, bool *any, bool *here) {
  word *mine = &s->all[s->t->rank];
  find_place(s);
  lay_out(s);
  if (s->ranks > 1 && s->place == 0 && create(s, mine) != WEIR_OK) say_why_not(s);
  weir_status status = tell(s, 0);
  if (status == WEIR_OK && s->ranks > 1) open_memory(s, mine);
  if (status == WEIR_OK) status = tell(s, 1);
  if (status != WEIR_OK) return status;
  *any = any_shares(s);
  *here = s->ranks > 1 && all_open(s, s->machine[s->t->rank]);
  return WEIR_OK;
}

weir_status weir_transport_share(weir_transport *t, const int *machine, double timeout_s) {
  if (!t->ops->take_memory)
    return weir_fail(WEIR_E_UNSUPPORTED, "ranks over %s cannot share memory", t->ops->name);
  sharing s = {.t = t,
               .streams = t->ops->streams ? t->ops->streams(t) : 1,
               .between = t->ops->name,
               .machine = machine,
               .deadline_s = weir_now_s() + timeout_s,
               .fd = -1};
  bool any = false, here = false, together = false;
  for (int r = 0; r < t->size; r++) together = together || ranks_of(&s, machine[r]) > 1;
  if (!together) return WEIR_OK;
  s.all = calloc((size_t)t->size, sizeof *s.all);
  if (!s.all) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", t->size);
  const weir_status status = share(&s, &any, &here);
  if (!here) weir_machine_memory_close(&s.shared);
  /* Those whose machine shares none take nothing, and the name that all go by. */
  if (status == WEIR_OK && any) t->ops->take_memory(t, &s.shared);
  if (status == WEIR_OK && here)
    weir_log(WEIR_LOG_INFO, "the %d ranks of this machine share memory; to the %d others over %s",
             s.ranks, t->size - s.ranks, s.between);
  weir_machine_memory_close(&s.shared); /* what was not taken */
  if (s.fd >= 0) (void)close(s.fd);
  free(s.all);
  return status;
}
