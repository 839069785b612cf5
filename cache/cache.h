/* Inside of the cache of samples (include/weir/cache.h).
 *
 * open.c    life, options, and how ranks learn where each other's cache serves
 * ahead.c   the order, and threads that read it ahead
 * fetch.c   a sample from its owner: this rank or another
 * store.c   what this rank holds, and how it is filled from disk and source
 * disk.c    the file of samples
 * wire.c    what travels between ranks
 * hello.c   who may connect
 * serve.c   threads that answer other ranks */
#ifndef WEIR_CACHE_CACHE_H
#define WEIR_CACHE_CACHE_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/cache.h>

#include "cache/wire.h"
#include "collectives/secret.h"

/* --- what this rank holds ------------------------------------------------------------------- */

typedef struct cache_held {
  unsigned char *data; /* NULL: not in memory; it stays once it is there */
  uint64_t at;         /* where its bytes are in the file; 0: not on disk */
  uint32_t bytes, crc;
  bool loading; /* some thread is reading it */
} cache_held;

/* Room for one sample being read. */
typedef struct cache_scratch {
  unsigned char *sample; /* sample_bytes */
  unsigned char *source; /* source_bytes; NULL: nothing is decoded */
} cache_scratch;

typedef enum cache_place { CACHE_MEMORY, CACHE_PEER, CACHE_DISK, CACHE_SOURCE } cache_place;

/* A sample as found: data is held memory, or a scratch's. */
typedef struct cache_found {
  const unsigned char *data;
  uint32_t bytes, crc;
  cache_place place;
} cache_found;

typedef struct cache_disk {
  int fd;       /* -1: none */
  uint64_t end; /* where the next record goes */
  bool full;    /* it could not be written to */
} cache_disk;

/* --- reading ahead -------------------------------------------------------------------------- */

/* Places of an order are numbered on from one order to the next, so that what a thread was reading
 * for an older one is never taken for the newer's. */
typedef struct cache_slot {
  uint32_t index;
  bool busy; /* a thread writes to it */
  weir_status status;
  size_t bytes;
  char failure[256];
} cache_slot;

typedef struct cache_ahead {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool stop;
  uint32_t *order; /* room for all samples */
  size_t count;
  uint64_t first;      /* the place of order[0] */
  uint64_t head, next; /* places not yet taken, of which those from next on not yet begun */
  unsigned busy;       /* slots that are */
  cache_slot *slot;    /* options.ahead of them: place p is in [p % ahead] */
  unsigned char *data; /* sample_bytes each */
  pthread_t *thread;
  uint32_t threads; /* that run */
} cache_ahead;

/* --- other ranks ---------------------------------------------------------------------------- */

typedef struct cache_peer {
  struct sockaddr_in address;
  atomic_bool lost;
} cache_peer;

/* A connection that is being served. */
typedef struct cache_guest {
  weir_cache *cache;
  pthread_t thread;
  int fd;
  enum { GUEST_NONE, GUEST_UNKNOWN, GUEST_KNOWN, GUEST_GONE } state;
} cache_guest;

typedef struct cache_service {
  int listener; /* -1: a group of one */
  int stop;     /* eventfd: all shall end */
  bool running;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t freed;
  cache_guest *guest;
  size_t guests;          /* room for them */
  cache_scratch *scratch; /* options.readers of them, for what is not in memory */
  uint32_t spare;         /* of those: scratch[0 .. spare-1] are free */
} cache_service;

struct weir_cache {
  weir_cache_options options;
  int rank, size;
  weir_key key;
  cache_peer *peer;

  pthread_mutex_t mutex; /* of what follows */
  pthread_cond_t loaded;
  cache_held *held;
  uint64_t memory_bytes;
  cache_disk disk;
  weir_cache_stats stats;

  cache_ahead ahead;
  cache_scratch *scratch; /* of the caller's thread and each reader; .sample of the caller's only */
  int *link;              /* their connections, size each; -1: none */
  cache_service service;
};

/* --- store.c -------------------------------------------------------------------------------- */

/* Find a sample on this rank, or read it from the source and keep it. */
weir_status cache_find(weir_cache *cache, uint32_t index, const cache_scratch *scratch,
                       cache_found *found);
void cache_count(weir_cache *cache, uint64_t *counter);

/* --- disk.c --------------------------------------------------------------------------------- */

weir_status cache_disk_open(weir_cache *cache);
/* Write a sample, if there is room.  The offset of its bytes; 0: it is not on disk. */
uint64_t cache_disk_write(weir_cache *cache, uint32_t index, const cache_found *sample);
/* Read held bytes and check them. */
bool cache_disk_read(const weir_cache *cache, const cache_held *held, unsigned char *to);
void cache_disk_close(weir_cache *cache);

/* --- fetch.c -------------------------------------------------------------------------------- */

/* Whose sample it is, among those that are not lost: a function of both alone. */
int cache_owner(const weir_cache *cache, uint32_t index);
/* A sample into to (sample_bytes), as thread `who`: 0 is the caller's, reader r is r + 1. */
weir_status cache_fetch(weir_cache *cache, uint32_t index, uint32_t who, unsigned char *to,
                        size_t *bytes);

/* --- ahead.c -------------------------------------------------------------------------------- */

weir_status cache_ahead_start(weir_cache *cache);
void cache_ahead_stop(weir_cache *cache);

/* --- hello.c -------------------------------------------------------------------------------- */

/* Prove to each other to belong to this cache, as the one who connects and the other. */
bool cache_greet(const weir_cache *cache, int fd, int peer, double deadline_s);
bool cache_admit(const weir_cache *cache, int fd, double deadline_s);

/* --- serve.c -------------------------------------------------------------------------------- */

weir_status cache_serve_start(weir_cache *cache);
void cache_serve_stop(weir_cache *cache);

#endif
