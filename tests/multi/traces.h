/* What a process and a machine hold, so that tests can tell what was left behind. */
#ifndef WEIR_TESTS_TRACES_H
#define WEIR_TESTS_TRACES_H

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/secret.h"
#include "collectives/transport.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define TRACES_HEAP 0
#define TRACES_THREADS 0
#elif defined(__SANITIZE_THREAD__)
#define TRACES_HEAP 0
#define TRACES_THREADS 1 /* its own, from a process's first thread on */
#else
#define TRACES_HEAP 1
#define TRACES_THREADS 0
#endif

#if TRACES_HEAP
/* Bytes that are allocated, exactly: every allocation of this program and of its libraries comes
 * through here, in front of glibc's own. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static _Atomic size_t traces_allocated;

static void *traces_gain(void *memory) {
  if (memory) atomic_fetch_add(&traces_allocated, malloc_usable_size(memory));
  return memory;
}
void *malloc(size_t bytes) { return traces_gain(__libc_malloc(bytes)); }
void *calloc(size_t count, size_t bytes) { return traces_gain(__libc_calloc(count, bytes)); }
void *memalign(size_t alignment, size_t bytes) {
  return traces_gain(__libc_memalign(alignment, bytes));
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
void *realloc(void *old, size_t bytes) {
  const size_t before = old ? malloc_usable_size(old) : 0;
  void *memory = traces_gain(__libc_realloc(old, bytes));
  if (memory || bytes == 0) atomic_fetch_sub(&traces_allocated, before);
  return memory;
}
void free(void *memory) {
  if (memory) atomic_fetch_sub(&traces_allocated, malloc_usable_size(memory));
  __libc_free(memory);
}
#else
static const size_t traces_allocated = 0; /* LeakSanitizer looks instead */
#endif

/* What libraries keep to use again: with a thread's stack, libcrypto's state of each thread.
 * Smaller leaks are LeakSanitizer's to find. */
#define TRACES_SLACK 16384

typedef struct traces {
  int descriptors, threads;
  int segments; /* mappings of shared memory */
  size_t heap;  /* bytes allocated */
} traces;

/* Entries of a folder whose names begin like this. */
static inline int traces_entries(const char *path, const char *prefix) {
  int count = 0;
  DIR *folder = opendir(path);
  for (const struct dirent *e; folder && (e = readdir(folder)) != NULL;)
    if (e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0) count++;
  if (folder) (void)closedir(folder);
  return count;
}

static inline traces traces_now(void) {
  char line[512];
  traces t = {.descriptors = traces_entries("/proc/self/fd", "") - 1, /* the folder's own */
              .threads = traces_entries("/proc/self/task", "")};
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "/dev/shm/weir-")) t.segments++;
  if (maps) (void)fclose(maps);
  t.heap = traces_allocated;
  return t;
}

/* WEIR_E_INTERNAL when more is there than before. */
static inline weir_status traces_check(const traces *before) {
#if defined(__SANITIZE_ADDRESS__)
  if (__lsan_do_recoverable_leak_check())
    return weir_fail(WEIR_E_INTERNAL, "memory is left behind");
#endif
  traces now = traces_now();
  /* A thread that has been joined may still be on its last instructions. */
  for (int i = 0; i < 100 && now.threads > before->threads + TRACES_THREADS; i++) {
    (void)usleep(10000);
    now = traces_now();
  }
  if (now.descriptors != before->descriptors)
    return weir_fail(WEIR_E_INTERNAL, "%d descriptors, %d before", now.descriptors,
                     before->descriptors);
  if (now.threads < before->threads || now.threads > before->threads + TRACES_THREADS)
    return weir_fail(WEIR_E_INTERNAL, "%d threads, %d before", now.threads, before->threads);
  if (now.segments != before->segments)
    return weir_fail(WEIR_E_INTERNAL, "%d mappings of shared memory, %d before", now.segments,
                     before->segments);
  if (now.heap > before->heap + TRACES_SLACK)
    return weir_fail(WEIR_E_INTERNAL, "%zu bytes of memory, %zu before", now.heap, before->heap);
  return WEIR_OK;
}

/* Groups of ours with a name in shared memory. */
static inline int traces_named_segments(void) { return traces_entries("/dev/shm", "weir-"); }

static inline void *traces_prove(void *argument) {
  const weir_key key = {{1}};
  unsigned char proof[WEIR_PROOF_BYTES];
  weir_prove(&key, "", NULL, 0, proof);
  return argument;
}

typedef struct traces_seat {
  char where[32];
  int rank;
} traces_seat;

static inline void *traces_meet(void *argument) {
  const traces_seat *seat = argument;
  weir_transport *t = NULL;
  const weir_tcp_options options = {.rendezvous = seat->where,
                                    .secret = "traces",
                                    .secret_bytes = 6,
                                    .rank = seat->rank,
                                    .size = 2,
                                    .timeout_s = 10};
  if (weir_transport_tcp_open(&t, &options) == WEIR_OK) t->ops->destroy(t);
  return NULL;
}

/* What libraries allocate once and keep (the resolver, a thread's stack, libcrypto's tables, what
 * TLS needs) is there from now on. */
static inline void traces_settle(void) {
  traces_seat seat[2] = {{.rank = 0}, {.rank = 1}};
  pthread_t thread;
  for (int i = 0; i < 2; i++)
    (void)snprintf(seat[i].where, sizeof seat[i].where, "127.0.0.1:%d",
                   i ? atoi(seat[0].where + 10) : weir_free_port());
  (void)traces_prove(NULL);
  if (pthread_create(&thread, NULL, traces_meet, &seat[1]) != 0) return;
  (void)traces_meet(&seat[0]);
  (void)pthread_join(thread, NULL);
}

static inline bool traces_write(const char *path, const char *text) {
  FILE *file = fopen(path, "we");
  const bool good = file && fputs(text, file) >= 0;
  return file && fclose(file) == 0 && good;
}

/* A network, mounts and shared memory of this process's own, so that ports and segments are nobody
 * else's.  False where the kernel does not allow it: they are then shared with the machine. */
static inline bool traces_isolate(void) {
  char map[64];
  const uid_t user = geteuid();
  const gid_t users = getegid();
  if (unshare(CLONE_NEWNS | CLONE_NEWNET | (user ? CLONE_NEWUSER : 0)) != 0) return false;
  if (user != 0) {
    (void)traces_write("/proc/self/setgroups", "deny");
    (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)user);
    (void)traces_write("/proc/self/uid_map", map);
    (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)users);
    (void)traces_write("/proc/self/gid_map", map);
  }
  struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
  if (fd >= 0) (void)close(fd);
  return up && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=50%") == 0;
}

#endif
