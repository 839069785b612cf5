/* A cache of samples ("DataCache": S. Shi et al., "Towards Scalable Distributed Training of Deep
 * Learning on Public Cloud Clusters", section 4.1): what is slow to read is read and decoded once
 * by the group, and kept in the memory of its machines.
 *
 * Every sample has an owner, a rank that follows from the sample's number alone.  The owner reads a
 * sample from the source when it is first asked for it and keeps it in its memory, or, where that
 * is full, on its disk; other ranks ask it over TCP connections of the cache's own, so that a
 * step's collectives are not disturbed.  Both ends of a connection prove that they are of the job;
 * samples then travel as plain text, also where the session's messages are encrypted.  What fits in
 * neither is read from the source each time.  A rank that does not answer within timeout_s is asked
 * no more, and those left own what it owned.
 *
 * Threads: a cache is used from one thread at a time.  Its own threads call read and decode,
 * several at a time and beside the caller's. */
#ifndef WEIR_CACHE_H
#define WEIR_CACHE_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weir_cache weir_cache;

typedef struct weir_cache_options {
  size_t struct_size;  /* set by weir_cache_options_init */
  uint64_t samples;    /* numbered from 0; 1 to 2^32 - 1 */
  size_t sample_bytes; /* most that a sample has once it is decoded, up to 1 GiB */
  size_t source_bytes; /* most that it has in the source; 0 (default): sample_bytes */

  /* The source: writes sample `index` to buffer, which has room for *bytes, and sets *bytes to what
   * it wrote.  Returns 0, or an errno value for weir_cache_get to report. */
  int (*read)(void *user, uint64_t index, void *buffer, size_t *bytes);
  /* NULL (default), or makes of `count` bytes of the source what a trainer uses; otherwise like
   * read. */
  int (*decode)(void *user, uint64_t index, const void *from, size_t count, void *buffer,
                size_t *bytes);
  void *user; /* handed to both */

  /* Bytes that the cache may take on this rank, 0 (default): any.  Samples kept, those read ahead,
   * tables and buffers count; the stacks of its threads do not. */
  uint64_t memory_limit;
  /* Folder for a file of samples that memory has no room for; NULL (default): none.  Borrowed for
   * the call.  The file has no name and is gone with the process, unless keep_disk is set: then it
   * is called weir-cache-RANK, and the next cache of the same data set starts with what it holds.
   * At most disk_limit bytes; 0 (default): any. */
  const char *folder;
  uint64_t disk_limit;
  bool keep_disk;
  uint64_t dataset; /* the data set's name or version as a number, checked with keep_disk */

  uint64_t seed;    /* of the shuffle; the same on all ranks, default 1 */
  uint32_t readers; /* threads that read ahead, 1 to 64, default 4 */
  uint32_t ahead;   /* samples that they read ahead, 1 to 65536, default 64 */
  double timeout_s; /* longest wait for another rank, default 5 */
  /* Local IPv4 address to serve on.  NULL (default): where the session's messages reach this rank;
   * where these have no addresses, as over MPI, the loopback of one machine, or else what leads to
   * the session's rendezvous or is the machine's name. */
  const char *bind_address;
} weir_cache_options;

/* Fill in the defaults of a struct of that size. */
void weir_cache_options_init_sized(weir_cache_options *options, size_t struct_size);
static inline void weir_cache_options_init(weir_cache_options *options) {
  weir_cache_options_init_sized(options, sizeof *options);
}

/* Open a cache among the ranks of a session: collective, after weir_session_start, between steps.
 * Afterwards the session is not used any more, and may be freed.  session NULL: a group of one.
 * WEIR_E_INVALID: an option is out of its range, or memory_limit is below what reading takes at
 * least; the message has the figures.  WEIR_E_MISMATCH: ranks have other samples or another seed.
 * WEIR_E_UNSUPPORTED: the job has no secret and its ranks are not on the loopback, or they are on
 * several machines and no address is known at which others reach this one (set bind_address).
 * WEIR_E_IO: the folder cannot be used.  WEIR_E_STATE: another rank could not open its part. */
weir_status weir_cache_open(weir_cache **out, weir_session *session,
                            const weir_cache_options *options);

/* Begin an epoch: a permutation of all samples, which follows from seed and epoch alone; rank r of
 * N gets places r, r + N, r + 2N, ... of it, so that each sample is some rank's, once.  *order
 * (count entries, which differ by at most one between ranks; valid until the next call of this or
 * weir_cache_ahead) is this rank's, and is read ahead from now on.  Both pointers may be NULL. */
weir_status weir_cache_epoch(weir_cache *cache, uint64_t epoch, const uint32_t **order,
                             size_t *count);
/* Read these ahead instead, for trainers with an order of their own: at most `samples` of them,
 * copied.  count 0: read nothing ahead any more; what is under way is waited for. */
weir_status weir_cache_ahead(weir_cache *cache, const uint32_t *order, size_t count);

/* Sample `index` into buffer, which has room for `capacity` bytes; *bytes (may be NULL) is what it
 * has.  Any sample may be asked for at any time; one that has been read ahead is there at once, and
 * those before it in the order are then dropped.
 * WEIR_E_IO: the source failed; the message has the sample and why.  WEIR_E_CAPACITY: it does not
 * fit.  Either way the cache can be used further. */
weir_status weir_cache_get(weir_cache *cache, uint64_t index, void *buffer, size_t capacity,
                           size_t *bytes);

/* Where samples have come from so far. */
typedef struct weir_cache_stats {
  size_t struct_size;    /* set it to sizeof(weir_cache_stats); it stays */
  uint64_t from_memory;  /* samples for this rank, of its own memory */
  uint64_t from_peers;   /* of other ranks */
  uint64_t from_disk;    /* of its disk */
  uint64_t from_source;  /* of its source */
  uint64_t source_reads; /* calls of read on this rank, for whomever */
  uint64_t memory_bytes; /* taken now; it never shrinks */
  uint64_t disk_bytes;
  uint64_t corrupt;   /* samples on disk that were damaged, and were read again */
  uint64_t lost;      /* ranks that are asked no more */
  uint64_t strangers; /* connections that did not know the job's secret */
} weir_cache_stats;
weir_status weir_cache_statistics(weir_cache *cache, weir_cache_stats *stats);

/* Waits for reads under way, then frees everything; NULL is allowed.  Ranks that still need what
 * this one holds read it from the source. */
void weir_cache_close(weir_cache *cache);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
