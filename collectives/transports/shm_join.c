/* How ranks find the segment and one another.
 *
 * Rank 0 creates the segment and holds a lock on it until the group is complete; the kernel lets go
 * of the lock when rank 0 dies.  A segment under the name without a lock on it is therefore left
 * over: rank 0 replaces it, the others wait for its successor.  A rank claims its place with one
 * atomic exchange; when all places are claimed rank 0 fixes them and takes the name away. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/shm.h"

#define RETRY_S 0.002
#define SLICE_S 0.05
#define RINGS_BYTES ((size_t)32 * 1024 * 1024) /* all rings of a group, about */
#define RING_MAX ((size_t)512 * 1024)
#define RING_MIN ((size_t)4 * 1024)
#define SLOTS_BYTES ((size_t)16 * 1024 * 1024) /* all slots of a group, at the most */
#define SLOT_MAX ((size_t)128 * 1024)

size_t shm_ring_size(int size) {
  size_t bytes = RING_MAX;
  while (bytes > RING_MIN && bytes * (size_t)size * (size_t)size > RINGS_BYTES) bytes /= 2;
  return bytes;
}

size_t shm_slot_size(int size) {
  size_t bytes = SLOT_MAX;
  while (bytes * SHM_SLOTS * (size_t)size > SLOTS_BYTES) bytes /= 2;
  return bytes;
}

size_t shm_segment_size(int size) {
  const size_t n = (size_t)size;
  return sizeof(shm_header) + n * sizeof(shm_member) +
         n * n * (sizeof(shm_ring) + shm_ring_size(size)) +
         n * (sizeof(shm_board) + SHM_SLOTS * shm_slot_size(size));
}

weir_status weir_transport_shm_fits(int size) {
  const size_t bytes = shm_segment_size(size);
  struct statvfs there;
  /* Without blocks it has no limit. */
  if (statvfs("/dev/shm", &there) != 0 || there.f_blocks == 0 ||
      (uint64_t)there.f_bavail * there.f_frsize >= bytes)
    return WEIR_OK;
  return weir_fail(WEIR_E_NOMEM, "/dev/shm has no room for the %zu bytes of %d ranks", bytes, size);
}

void shm_segment_name(const char *group, char name[SHM_NAME_MAX]) {
  (void)snprintf(name, SHM_NAME_MAX, "/weir-%u-%016llx", (unsigned)geteuid(),
                 (unsigned long long)weir_hash(WEIR_HASH_INIT, group, strlen(group)));
}

static void pause_s(double seconds) {
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)(seconds * 1e9)};
  (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* Numbers of processes mean something only within one of these. */
static uint64_t pid_space(void) {
  struct stat found;
  return stat("/proc/self/ns/pid", &found) == 0 ? (uint64_t)found.st_ino : 0;
}

static weir_status map(shm *self, size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, 0);
  if (at == MAP_FAILED)
    return weir_fail(WEIR_E_NOMEM, "cannot map %zu bytes of shared memory: %s", bytes,
                     strerror(errno));
  self->segment = at;
  self->bytes = bytes;
  self->header = at;
  self->member = (shm_member *)(self->header + 1);
  self->ring_bytes = shm_ring_size(self->base.size);
  return WEIR_OK;
}

static void unmap(shm *self) {
  if (self->segment) (void)munmap(self->segment, self->bytes);
  self->segment = NULL;
  if (self->fd >= 0) (void)close(self->fd);
  self->fd = -1;
}

/* The segment under the name, if it is this user's.  fd is -1 when there is none. */
static weir_status open_named(const char *name, int *fd, struct stat *found) {
  *fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
  if (*fd < 0 && errno == ENOENT) return WEIR_OK;
  if (*fd < 0)
    return weir_fail(WEIR_E_IO, "cannot open shared memory %s: %s", name, strerror(errno));
  if (fstat(*fd, found) == 0 && found->st_uid == geteuid() && (found->st_mode & 077) == 0)
    return WEIR_OK;
  (void)close(*fd);
  *fd = -1;
  return weir_fail(WEIR_E_INVALID, "shared memory %s is open to other users", name);
}

/* Take away what a rank 0 that died has left.  *busy: the name belongs to somebody alive. */
static weir_status clear_left_over(const char *name, bool *busy) {
  int fd = -1;
  struct stat found;
  *busy = false;
  const weir_status status = open_named(name, &fd, &found);
  if (status != WEIR_OK || fd < 0) return status;
  *busy = flock(fd, LOCK_EX | LOCK_NB) != 0;
  /* A link count of 0: somebody else has just cleared it, and the name may be taken anew. */
  if (!*busy && fstat(fd, &found) == 0 && found.st_nlink > 0) (void)shm_unlink(name);
  (void)close(fd);
  return WEIR_OK;
}

/* A new file under the name, locked. */
static weir_status create_named(shm *self, double deadline_s) {
  while (weir_now_s() < deadline_s) {
    bool busy = false;
    struct stat made;
    self->fd = shm_open(self->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (self->fd >= 0) {
      int tries = 100; /* another rank may look whether it is locked just now */
      while (flock(self->fd, LOCK_EX | LOCK_NB) != 0 && --tries > 0) pause_s(RETRY_S / 4);
      if (tries > 0 && fstat(self->fd, &made) == 0 && made.st_nlink > 0) return WEIR_OK;
      (void)close(self->fd);
      self->fd = -1;
      continue;
    }
    if (errno != EEXIST)
      return weir_fail(WEIR_E_IO, "cannot create shared memory %s: %s", self->name,
                       strerror(errno));
    const weir_status status = clear_left_over(self->name, &busy);
    if (status != WEIR_OK) return status;
    if (busy) pause_s(RETRY_S);
  }
  return weir_fail(WEIR_E_TIMEOUT, "another group of this name did not come together in time");
}

static weir_status establish(shm *self, double deadline_s) {
  weir_status status = create_named(self, deadline_s);
  if (status != WEIR_OK) return status;
  const size_t bytes = shm_segment_size(self->base.size);
  const int error = posix_fallocate(self->fd, 0, (off_t)bytes); /* or a write may be a SIGBUS */
  if (error != 0)
    status = weir_fail(WEIR_E_NOMEM, "no room for %zu bytes of shared memory: %s", bytes,
                       strerror(error));
  if (status == WEIR_OK) status = map(self, bytes);
  if (status != WEIR_OK) {
    (void)shm_unlink(self->name);
    return status;
  }
  self->header->magic = SHM_MAGIC;
  self->header->version = SHM_VERSION;
  self->header->job = self->job;
  self->header->bytes = bytes;
  self->header->ring_bytes = self->ring_bytes;
  self->header->pid_space = pid_space();
  while (getrandom(&self->header->nonce, sizeof self->header->nonce, 0) !=
         (ssize_t)sizeof self->header->nonce)
    continue;
  self->header->size = (uint32_t)self->base.size;
  for (int r = 0; r < self->base.size; r++) atomic_store(&self->member[r].waiting_on, -1);
  atomic_store(&self->member[0].pid, (int32_t)getpid());
  atomic_store(&self->member[0].state, SHM_CLAIMED);
  atomic_store(&self->header->open, 1);
  return WEIR_OK;
}

static weir_status judge(const shm *self, size_t bytes) {
  const shm_header *h = self->header;
  if (h->magic != SHM_MAGIC)
    return weir_fail(WEIR_E_PROTOCOL, "shared memory %s is none of ours", self->name);
  if (h->version != SHM_VERSION)
    return weir_fail(WEIR_E_MISMATCH, "rank 0 is of version %u, this rank of %d", h->version,
                     SHM_VERSION);
  if (h->job != self->job)
    return weir_fail(WEIR_E_MISMATCH, "rank 0 refused this rank: it belongs to another job");
  if (h->size != (uint32_t)self->base.size)
    return weir_fail(WEIR_E_MISMATCH,
                     "rank 0 refused this rank: it expects another number of ranks");
  if (h->bytes != bytes || bytes != shm_segment_size(self->base.size) ||
      h->ring_bytes != self->ring_bytes)
    return weir_fail(WEIR_E_PROTOCOL, "shared memory %s has another length than it says",
                     self->name);
  if (h->pid_space != pid_space())
    return weir_fail(WEIR_E_UNSUPPORTED, "rank 0 and this rank cannot see each other's processes");
  return WEIR_OK;
}

/* Has its rank 0 ended?  Then the lock on it is that of who is clearing it away. */
static bool left_over(const shm *self) {
  if (self->bytes < sizeof(shm_header) + sizeof(shm_member)) return false;
  const int32_t pid = atomic_load(&self->member[0].pid);
  if (pid <= 0 || self->header->pid_space != pid_space()) return false;
  struct pollfd founder = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
  if (founder.fd < 0) return errno == ESRCH;
  const bool ended = poll(&founder, 1, 0) == 1;
  (void)close(founder.fd);
  return ended;
}

/* One look at the name.  The segment stays unmapped when there is none (yet). */
static weir_status attach_once(shm *self) {
  struct stat there;
  weir_status status = open_named(self->name, &self->fd, &there);
  if (status != WEIR_OK || self->fd < 0) return status;
  const size_t bytes = (size_t)there.st_size;
  const bool locked = flock(self->fd, LOCK_SH | LOCK_NB) != 0;
  if (!locked || bytes < sizeof(shm_header)) {
    unmap(self);
    return WEIR_OK;
  }
  status = map(self, bytes);
  if (status != WEIR_OK) return status;
  if (!atomic_load(&self->header->open) || left_over(self)) {
    unmap(self);
    return WEIR_OK;
  }
  return judge(self, bytes);
}

/* There is no rank 0: what one may have left goes with the last rank that waited for it, because a
 * group of survivors has a name that no other group will ever look at. */
static weir_status abandoned(shm *self, weir_status status, const char *why) {
  bool busy;
  if (self->fd >= 0) (void)close(self->fd); /* and with it this rank's own lock */
  self->fd = -1;
  (void)clear_left_over(self->name, &busy);
  return weir_fail(status, "%s", why);
}

static weir_status attach(shm *self, double deadline_s) {
  weir_status status = attach_once(self);
  while (status == WEIR_OK && !self->segment && weir_now_s() < deadline_s) {
    pause_s(RETRY_S);
    status = attach_once(self);
  }
  if (status == WEIR_OK && !self->segment)
    status = abandoned(self, WEIR_E_TIMEOUT, "rank 0 did not open the group in time");
  if (status == WEIR_OK) {
    uint32_t due = SHM_FREE;
    shm_member *own = &self->member[self->base.rank];
    if (atomic_compare_exchange_strong(&own->state, &due, SHM_TAKEN)) {
      atomic_store(&own->pid, (int32_t)getpid());
      atomic_store(&own->came, 1);
      atomic_store(&own->state, SHM_CLAIMED);
      shm_ring_bell(self, 0);
    } else {
      status = weir_fail(WEIR_E_INVALID, "rank 0 refused this rank: its rank is taken");
    }
  }
  if (status != WEIR_OK) unmap(self); /* it has no place there to leave */
  return status;
}

/* Rather one that has never come than one that has waited for it and given up. */
static int first_missing(const shm *self) {
  int missing = -1;
  for (int r = self->base.size; r-- > 0;) {
    const shm_member *m = &self->member[r];
    if (atomic_load(&m->state) >= SHM_CLAIMED) continue;
    if (missing < 0 || !atomic_load(&m->came) || atomic_load(&self->member[missing].came))
      missing = r;
  }
  return missing;
}

/* Rank 0: once all have come, so that no place can be given back any more. */
static bool fix_all(shm *self) {
  bool all = first_missing(self) < 0;
  if (!all) return false;
  for (int r = 0; r < self->base.size; r++) {
    uint32_t due = SHM_CLAIMED;
    if (!atomic_compare_exchange_strong(&self->member[r].state, &due, SHM_FIXED) &&
        due != SHM_FIXED)
      all = false;
  }
  return all;
}

static weir_status gather(shm *self, double deadline_s) {
  bool all = fix_all(self);
  while (!all && weir_now_s() < deadline_s) {
    const uint32_t seen = atomic_load(&self->member[0].bell);
    all = fix_all(self);
    if (!all) (void)shm_sleep(self, seen, SLICE_S);
  }
  const int missing = first_missing(self);
  atomic_store(&self->header->phase, all ? SHM_COMPLETE : SHM_GIVEN_UP);
  shm_ring_all(self);
  (void)shm_unlink(self->name);
  return all ? WEIR_OK
             : weir_fail(WEIR_E_TIMEOUT, "rank %d did not join the group in time", missing);
}

/* Other ranks: until rank 0 says that all are there. */
static weir_status await(shm *self, double deadline_s) {
  shm_member *own = &self->member[self->base.rank];
  for (;;) {
    const uint32_t seen = atomic_load(&own->bell);
    const bool founder_lives = flock(self->fd, LOCK_SH | LOCK_NB) != 0;
    const uint32_t phase = atomic_load(&self->header->phase);
    if (phase == SHM_COMPLETE) return WEIR_OK;
    if (phase == SHM_GATHERING && !founder_lives)
      return abandoned(self, WEIR_E_PEER, "rank 0 is gone before the group was complete");
    if (phase == SHM_GATHERING && weir_now_s() < deadline_s) {
      (void)shm_sleep(self, seen, SLICE_S);
      continue;
    }
    const int missing = first_missing(self);
    uint32_t claimed = SHM_CLAIMED;
    if (atomic_compare_exchange_strong(&own->state, &claimed, SHM_FREE))
      unmap(self); /* the place may have another owner from now on */
    return weir_fail(WEIR_E_TIMEOUT, "rank %d did not join the group in time",
                     missing < 0 ? 0 : missing);
  }
}

weir_status shm_join(shm *self, const char *group, double deadline_s) {
  shm_segment_name(group, self->name);
  weir_status status =
      self->base.rank == 0 ? establish(self, deadline_s) : attach(self, deadline_s);
  if (status == WEIR_OK)
    status = self->base.rank == 0 ? gather(self, deadline_s) : await(self, deadline_s);
  if (self->fd >= 0) (void)close(self->fd); /* and with it rank 0's lock */
  self->fd = -1;
  return status;
}
