/* The file of samples: a header, then records in the order in which they came.  A record says what
 * it is and has a checksum, which is looked at before its bytes are used. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "cache/cache.h"

#define MAGIC UINT64_C(0x0145484341434957) /* "WICACHE", version 1 */

typedef struct file_header {
  uint64_t magic, dataset, samples, sample_bytes;
  uint32_t zero, checksum; /* of the bytes before it */
} file_header;
_Static_assert(sizeof(file_header) == 40, "a file's header has no padding");

typedef struct record {
  uint32_t index, bytes, crc, checksum; /* the last: of the bytes before it */
} record;
_Static_assert(sizeof(record) == 16, "a record has no padding");

static file_header header_of(const weir_cache *c) {
  file_header h = {.magic = htole64(MAGIC),
                   .dataset = htole64(c->options.dataset),
                   .samples = htole64(c->options.samples),
                   .sample_bytes = htole64(c->options.sample_bytes)};
  h.checksum = htole32(weir_crc32c(0, &h, offsetof(file_header, checksum)));
  return h;
}

static bool read_at(int fd, void *to, size_t bytes, uint64_t at) {
  unsigned char *p = to;
  while (bytes > 0) {
    const ssize_t got = pread(fd, p, bytes, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    at += (uint64_t)got;
    bytes -= (size_t)got;
  }
  return true;
}

static bool write_at(int fd, const void *from, size_t bytes, uint64_t at) {
  const unsigned char *p = from;
  while (bytes > 0) {
    const ssize_t put = pwrite(fd, p, bytes, (off_t)at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    p += put;
    at += (uint64_t)put;
    bytes -= (size_t)put;
  }
  return true;
}

/* Take over the records of a kept file, up to the first that is not whole or that the limit, which
 * may have been another, has no room for; what comes after is cut off. */
static bool adopt(weir_cache *c) {
  const uint64_t limit = c->options.disk_limit;
  record r;
  struct stat file;
  uint64_t at = sizeof(file_header);
  if (fstat(c->disk.fd, &file) != 0) return false;
  while (read_at(c->disk.fd, &r, sizeof r, at)) {
    const uint32_t index = le32toh(r.index), bytes = le32toh(r.bytes);
    if (le32toh(r.checksum) != weir_crc32c(0, &r, offsetof(record, checksum)) ||
        index >= c->options.samples || bytes > c->options.sample_bytes ||
        at + sizeof r + bytes > (uint64_t)file.st_size ||
        (limit > 0 && at + sizeof r + bytes > limit))
      break;
    c->held[index] = (cache_held){.at = at + sizeof r, .bytes = bytes, .crc = le32toh(r.crc)};
    at += sizeof r + bytes;
  }
  c->disk.end = at;
  return ftruncate(c->disk.fd, (off_t)at) == 0;
}

/* Without keep_disk the file loses its name at once: nothing is left of it, however this process
 * ends. */
static weir_status open_file(weir_cache *c, const char *path) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  const bool keep = c->options.keep_disk;
  if (!keep) (void)unlink(path);
  c->disk.fd = open(path, keep ? flags : flags | O_EXCL, 0600);
  if (c->disk.fd < 0)
    return weir_fail(WEIR_E_IO, "%s: cannot open the cache's file: %s", path, strerror(errno));
  if (!keep) (void)unlink(path);
  if (flock(c->disk.fd, LOCK_EX | LOCK_NB) != 0)
    return weir_fail(WEIR_E_STATE, "%s: another cache uses this file", path);
  return WEIR_OK;
}

weir_status cache_disk_open(weir_cache *c) {
  char path[4096];
  const char *folder = c->options.folder;
  if (folder == NULL) return WEIR_OK;
  const int length = c->options.keep_disk
                         ? snprintf(path, sizeof path, "%s/weir-cache-%d", folder, c->rank)
                         : snprintf(path, sizeof path, "%s/weir-cache-%d.%d.%p", folder, c->rank,
                                    (int)getpid(), (void *)c);
  if (length < 0 || (size_t)length >= sizeof path)
    return weir_fail(WEIR_E_INVALID, "the name of the cache's folder is too long");
  const weir_status status = open_file(c, path);
  if (status != WEIR_OK) return status;
  const file_header due = header_of(c);
  file_header found;
  c->disk.end = sizeof due;
  const bool kept =
      read_at(c->disk.fd, &found, sizeof found, 0) && memcmp(&found, &due, sizeof due) == 0;
  const bool good =
      kept ? adopt(c) : ftruncate(c->disk.fd, 0) == 0 && write_at(c->disk.fd, &due, sizeof due, 0);
  if (good) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s: cannot write the cache's file: %s", path, strerror(errno));
}

/* Room for a record; 0: there is none. */
static uint64_t reserve(weir_cache *c, uint64_t bytes) {
  const uint64_t limit = c->options.disk_limit;
  uint64_t at = 0;
  (void)pthread_mutex_lock(&c->mutex);
  if (c->disk.fd >= 0 && !c->disk.full && (limit == 0 || c->disk.end + bytes <= limit)) {
    at = c->disk.end;
    c->disk.end += bytes;
  }
  (void)pthread_mutex_unlock(&c->mutex);
  return at;
}

/* A disk that cannot be written to is full for good. */
static void give_up(weir_cache *c, int error) {
  (void)pthread_mutex_lock(&c->mutex);
  const bool first = !c->disk.full;
  c->disk.full = true;
  (void)pthread_mutex_unlock(&c->mutex);
  if (first)
    weir_log(WEIR_LOG_WARN, "the cache writes no more samples to disk: %s", strerror(error));
}

uint64_t cache_disk_write(weir_cache *c, uint32_t index, const cache_found *sample) {
  record r = {htole32(index), htole32(sample->bytes), htole32(sample->crc), 0};
  const uint64_t at = reserve(c, sizeof r + sample->bytes);
  if (at == 0) return 0;
  r.checksum = htole32(weir_crc32c(0, &r, offsetof(record, checksum)));
  if (write_at(c->disk.fd, sample->data, sample->bytes, at + sizeof r) &&
      write_at(c->disk.fd, &r, sizeof r, at))
    return at + sizeof r;
  give_up(c, errno);
  return 0;
}

bool cache_disk_read(const weir_cache *c, const cache_held *held, unsigned char *to) {
  return held->bytes <= c->options.sample_bytes && read_at(c->disk.fd, to, held->bytes, held->at) &&
         weir_crc32c(0, to, held->bytes) == held->crc;
}

void cache_disk_close(weir_cache *c) {
  if (c->disk.fd >= 0) (void)close(c->disk.fd);
}
