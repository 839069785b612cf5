/* Where status blocks lie: one file a rank, in a folder that is closed to other users.
 *
 * The file of a live process carries its lock (fcntl), which the kernel takes back when the process
 * ends, however it ends; a forked child has no part in it.  So whoever finds a file without a lock
 * may remove it.  A file gets its final name when it is locked and complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "session/status.h"

static bool name_folder(int which, char *path, size_t room) {
  const char *named = getenv("WEIR_STATUS_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
  const unsigned user = (unsigned)geteuid();
  int length = -1;
  if (named != NULL && *named != 0)
    length = which == 0 ? snprintf(path, room, "%s", named) : -1;
  else if (which == 0 && runtime != NULL && runtime[0] == '/')
    length = snprintf(path, room, "%s/weir", runtime);
  else if (which == 1)
    length = snprintf(path, room, "/run/user/%u/weir", user);
  else
    length = snprintf(path, room, "/tmp/weir-%u", user);
  return length >= 0 && (size_t)length < room;
}

weir_status weir_status_folder(int which, char *path, size_t room, bool make) {
  struct stat found;
  if (!name_folder(which, path, room))
    return weir_fail(WEIR_E_INVALID, "the status folder's name is too long, or there is none");
  if (make && mkdir(path, 0700) != 0 && errno != EEXIST)
    return weir_fail(WEIR_E_IO, "the status folder %s cannot be made: %s", path, strerror(errno));
  if (lstat(path, &found) != 0)
    return weir_fail(WEIR_E_IO, "the status folder %s: %s", path, strerror(errno));
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022) != 0)
    return weir_fail(WEIR_E_INVALID,
                     "the status folder %s is no folder, another user's, or others may write to it",
                     path);
  return WEIR_OK;
}

static bool wanted(weir_status *status) {
  const char *text = getenv("WEIR_STATUS");
  if (text == NULL || *text == 0 || strcmp(text, "on") == 0) return true;
  if (strcmp(text, "off") != 0)
    *status = weir_fail(WEIR_E_INVALID, "WEIR_STATUS is \"%.40s\"; on and off are known", text);
  return false;
}

static const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

static weir_status make_file(weir_status_file *out, int which, uint64_t job_id, int rank) {
  static _Atomic unsigned serial;
  char folder[400], temporary[sizeof out->path];
  weir_status status = weir_status_folder(which, folder, sizeof folder, true);
  if (status != WEIR_OK) return status;
  (void)snprintf(out->path, sizeof out->path, "%s/%016llx-%d-%d-%u", folder,
                 (unsigned long long)job_id, rank, (int)getpid(), atomic_fetch_add(&serial, 1));
  (void)snprintf(temporary, sizeof temporary, "%.480s.new", out->path);
  (void)unlink(temporary);
  struct flock lock = whole;
  errno = 0;
  out->file = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  /* Room is asked for now: a full disk must not become a bus error later. */
  if (out->file >= 0 && fcntl(out->file, F_SETLK, &lock) == 0)
    errno = posix_fallocate(out->file, 0, (off_t)out->bytes);
  if (out->file >= 0 && errno == 0 && rename(temporary, out->path) == 0) return WEIR_OK;
  status =
      weir_fail(WEIR_E_IO, "the status file %s cannot be made: %s", out->path, strerror(errno));
  if (out->file >= 0) {
    (void)unlink(temporary);
    (void)close(out->file);
  }
  out->file = -1;
  return status;
}

/* Once in a process, however many sessions it has. */
static void warn(const char *what, const char *why) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&warned)) weir_log(WEIR_LOG_WARN, "%s: %s", what, why);
}

/* Where $XDG_RUNTIME_DIR is of no use, the last folder that weir top looks into takes its place.
 * The one that WEIR_STATUS_DIR names is the only one. */
static void find_file(weir_status_file *out, uint64_t job_id, int rank) {
  char why[400], what[sizeof out->path + 64];
  if (make_file(out, 0, job_id, rank) == WEIR_OK) return;
  (void)snprintf(why, sizeof why, "%s", weir_last_error());
  if (make_file(out, WEIR_STATUS_FOLDERS - 1, job_id, rank) != WEIR_OK) {
    warn("weir top will not see this rank", why);
    return;
  }
  (void)snprintf(what, sizeof what, "the state of this rank is kept in %s", out->path);
  warn(what, why);
}

weir_status weir_status_open(weir_status_file *out, uint64_t job_id, int rank, int ranks) {
  const uint32_t capacity = ranks < WEIR_STATUS_RANKS ? (uint32_t)ranks : WEIR_STATUS_RANKS;
  weir_status status = WEIR_OK;
  *out = (weir_status_file){.file = -1, .bytes = weir_status_bytes(capacity)};
  if (wanted(&status)) {
    find_file(out, job_id, rank);
  } else if (status != WEIR_OK) {
    return status;
  }
  const int flags = out->file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void *memory = mmap(NULL, out->bytes, PROT_READ | PROT_WRITE, flags, out->file, 0);
  if (memory == MAP_FAILED) {
    weir_status_close(out);
    return weir_fail(WEIR_E_NOMEM, "no memory for a status block of %zu bytes", out->bytes);
  }
  weir_status_block *block = out->block = memory;
  block->capacity = capacity;
  block->bytes = out->bytes;
  block->job_id = job_id;
  block->pid = (int32_t)getpid();
  block->version = WEIR_STATUS_VERSION;
  block->magic = WEIR_STATUS_MAGIC;
  return WEIR_OK;
}

void weir_status_close(weir_status_file *file) {
  /* A child that was forked from the session's process does not remove its file. */
  if (file->file >= 0 && (file->block == NULL || file->block->pid == (int32_t)getpid()))
    (void)unlink(file->path);
  if (file->block != NULL) (void)munmap(file->block, file->bytes);
  if (file->file >= 0) (void)close(file->file);
  *file = (weir_status_file){.file = -1};
}

/* --- reading --------------------------------------------------------------------------------- */

static bool sound(const weir_status_block *block, size_t bytes) {
  return bytes >= sizeof *block && block->magic == WEIR_STATUS_MAGIC &&
         block->version == WEIR_STATUS_VERSION && block->capacity >= 1 &&
         block->capacity <= WEIR_STATUS_RANKS && block->bytes == bytes &&
         weir_status_bytes(block->capacity) == bytes;
}

/* Does the process that made the file still live? */
static bool held(int file) {
  struct flock lock = whole;
  return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool copy(int file, weir_status_block *to, size_t bytes) {
  return pread(file, to, bytes, 0) == (ssize_t)bytes;
}

/* A copy between two equal and even sequence numbers is whole. */
static bool copy_whole(int file, weir_status_block *to, size_t bytes) {
  const off_t at = (off_t)offsetof(weir_status_block, sequence);
  for (int turn = 0; turn < 100; turn++) {
    uint64_t before = 0, after = 1;
    if (pread(file, &before, sizeof before, at) != sizeof before || !copy(file, to, bytes) ||
        pread(file, &after, sizeof after, at) != sizeof after)
      return false;
    if (before == after && before % 2 == 0) {
      atomic_store(&to->sequence, before);
      return true;
    }
  }
  return false;
}

weir_status_block *weir_status_load(const char *path) {
  struct stat found;
  weir_status_block *block = NULL;
  const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return NULL;
  if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
      found.st_size >= (off_t)sizeof *block &&
      found.st_size <= (off_t)weir_status_bytes(WEIR_STATUS_RANKS))
    block = malloc((size_t)found.st_size);
  bool good = block != NULL && copy_whole(file, block, (size_t)found.st_size) &&
              sound(block, (size_t)found.st_size);
  /* Only what is ours for certain is cleared away. */
  if (good && !held(file)) {
    (void)unlink(path);
    good = false;
  }
  (void)close(file);
  if (good) return block;
  free(block);
  return NULL;
}
