#include "lab/savepoint.h"

#include <errno.h>
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/crc32c.h"
#include "lab/trainer_state.h"

#define VERSION 2u

typedef struct header {
  char magic[8];
  uint32_t version, hook_bytes;
  weir_savepoint at;
  uint64_t weights, moments, second; /* floats */
} header;
_Static_assert(sizeof(header) == 96, "headers are written as they lie in memory, without gaps");
static const char magic[8] = {'W', 'E', 'I', 'R', 'R', 'A', 'N', 'K'};

typedef struct stream {
  FILE *file;
  uint32_t crc;
} stream;

static bool put(void *user, const void *data, size_t bytes) {
  stream *s = user;
  s->crc = weir_crc32c(s->crc, data, bytes);
  return bytes == 0 || fwrite(data, 1, bytes, s->file) == bytes;
}

static bool take(void *user, void *data, size_t bytes) {
  stream *s = user;
  if (bytes > 0 && fread(data, 1, bytes, s->file) != bytes) return false;
  s->crc = weir_crc32c(s->crc, data, bytes);
  return true;
}

static char *path_of(const char *out, uint32_t rank, uint32_t slot, const char *ending) {
  char name[64];
  (void)snprintf(name, sizeof name, ".weir-rank-%u.%u%s", rank, slot, ending);
  return g_build_filename(out, name, NULL);
}

/* --- writing ---------------------------------------------------------------------------------- */

static weir_status put_trainer(stream *s, const weir_savepoint *at, weir_trainer *trainer) {
  size_t weights, moments, second;
  const float *w = weir_trainer_weights(trainer, &weights);
  const float *m = weir_trainer_momentum(trainer, &moments);
  const float *v = weir_trainer_second(trainer, &second);
  const weir_state_hooks hooks = weir_trainer_hooks(trainer);
  header h = {.version = VERSION,
              .hook_bytes = (uint32_t)hooks.bytes(hooks.user),
              .at = *at,
              .weights = weights,
              .moments = moments,
              .second = second};
  memcpy(h.magic, magic, sizeof magic);
  void *position = malloc(h.hook_bytes);
  if (!position) return weir_fail(WEIR_E_NOMEM, "no memory for a checkpoint");
  hooks.save(hooks.user, position);
  const bool good = put(s, &h, sizeof h) && put(s, w, weights * sizeof *w) &&
                    put(s, m, moments * sizeof *m) && put(s, v, second * sizeof *v) &&
                    put(s, position, h.hook_bytes);
  free(position);
  return good ? WEIR_OK : weir_fail(WEIR_E_IO, "%s", strerror(errno));
}

static weir_status put_all(stream *s, const weir_savepoint *at, weir_trainer *trainer,
                           weir_session *session) {
  weir_status status = put_trainer(s, at, trainer);
  if (!status) status = weir_session_save(session, put, s);
  const uint32_t crc = s->crc;
  if (!status && (!put(s, &crc, sizeof crc) || fflush(s->file) || fsync(fileno(s->file))))
    status = weir_fail(WEIR_E_IO, "%s", strerror(errno));
  return status;
}

weir_status weir_savepoint_write(const char *out, const weir_savepoint *at, weir_trainer *trainer,
                                 weir_session *session) {
  g_autofree char *path = path_of(out, at->rank, at->slot, "");
  g_autofree char *beside = path_of(out, at->rank, at->slot, ".tmp");
  stream s = {.file = fopen(beside, "we")};
  if (!s.file) return weir_fail(WEIR_E_IO, "%s: %s", beside, strerror(errno));
  weir_status status = put_all(&s, at, trainer, session);
  if (fclose(s.file) && !status) status = weir_fail(WEIR_E_IO, "%s", strerror(errno));
  if (!status && rename(beside, path)) status = weir_fail(WEIR_E_IO, "%s", strerror(errno));
  if (status) (void)unlink(beside);
  return status;
}

/* --- reading ---------------------------------------------------------------------------------- */

static weir_status damaged(const char *path) {
  return weir_fail(WEIR_E_PARSE, "%s is no checkpoint of this run, or damaged", path);
}

static weir_status take_trainer(stream *s, const char *path, const weir_savepoint *at,
                                weir_trainer *trainer) {
  size_t weights, moments, second;
  float *w = weir_trainer_weights(trainer, &weights);
  float *m = weir_trainer_momentum(trainer, &moments);
  float *v = weir_trainer_second(trainer, &second);
  const weir_state_hooks hooks = weir_trainer_hooks(trainer);
  const size_t bytes = hooks.bytes(hooks.user);
  header h;
  if (!take(s, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic) || h.version != VERSION)
    return damaged(path);
  if (h.at.run != at->run || h.at.rank != at->rank || h.at.workers != at->workers ||
      h.at.committed != at->committed || h.weights != weights || h.moments != moments ||
      h.second != second || h.hook_bytes != bytes)
    return weir_fail(WEIR_E_MISMATCH, "%s is of another run, rank, step or model", path);
  void *position = malloc(bytes);
  if (!position) return weir_fail(WEIR_E_NOMEM, "no memory for a checkpoint");
  weir_status status = WEIR_OK;
  if (!take(s, w, weights * sizeof *w) || !take(s, m, moments * sizeof *m) ||
      !take(s, v, second * sizeof *v) || !take(s, position, bytes))
    status = damaged(path);
  if (!status) status = weir_trainer_go_on(trainer, position);
  free(position);
  return status;
}

weir_status weir_savepoint_load(const char *out, const weir_savepoint *at, weir_trainer *trainer,
                                weir_session *session) {
  g_autofree char *path = path_of(out, at->rank, at->slot, "");
  stream s = {.file = NULL};
  weir_status status = weir_text_open(&s.file, path, "a checkpoint", false);
  if (status) return status;
  status = take_trainer(&s, path, at, trainer);
  if (!status) status = weir_session_load(session, take, &s);
  const uint32_t due = s.crc;
  uint32_t told;
  if (!status && (!take(&s, &told, sizeof told) || told != due || fgetc(s.file) != EOF))
    status = damaged(path);
  (void)fclose(s.file);
  return status;
}

/* Is the file whole? */
static bool sound(FILE *file) {
  static const size_t most = 1 << 20;
  unsigned char *bytes = malloc(most);
  uint32_t crc = 0, told = 0;
  off_t left = fseeko(file, 0, SEEK_END) ? -1 : ftello(file);
  left -= (off_t)sizeof told;
  bool good = bytes && left >= (off_t)sizeof(header) && !fseeko(file, 0, SEEK_SET);
  while (good && left > 0) {
    const size_t part = left < (off_t)most ? (size_t)left : most;
    good = fread(bytes, 1, part, file) == part;
    if (good) crc = weir_crc32c(crc, bytes, part);
    left -= (off_t)part;
  }
  good = good && fread(&told, 1, sizeof told, file) == sizeof told && told == crc;
  free(bytes);
  return good;
}

static bool look(const char *out, uint32_t rank, uint32_t slot, weir_savepoint *at) {
  g_autofree char *path = path_of(out, rank, slot, "");
  FILE *file;
  header h;
  if (weir_text_open(&file, path, "a checkpoint", false)) return false;
  const bool good = fread(&h, 1, sizeof h, file) == sizeof h &&
                    !memcmp(h.magic, magic, sizeof magic) && h.version == VERSION &&
                    h.at.rank == rank && h.at.slot == slot && isfinite(h.at.elapsed_s) &&
                    isfinite(h.at.virtual_s) && h.at.elapsed_s >= 0 && h.at.virtual_s >= 0 &&
                    h.at.executed >= h.at.committed && sound(file);
  (void)fclose(file);
  *at = h.at;
  return good;
}

/* All ranks' files of a slot. */
static bool whole(const char *out, uint32_t slot, uint64_t run, uint32_t workers,
                  weir_savepoint *first) {
  for (uint32_t r = 0; r < workers; r++) {
    weir_savepoint at;
    if (!look(out, r, slot, &at) || at.run != run || at.workers != workers) return false;
    if (r == 0) *first = at;
    if (at.committed != first->committed || at.executed != first->executed) return false;
  }
  return true;
}

bool weir_savepoint_find(const char *out, uint64_t run, uint32_t workers, weir_savepoint *at) {
  bool found = false;
  for (uint32_t slot = 0; slot < 2; slot++) {
    weir_savepoint first;
    if (!whole(out, slot, run, workers, &first)) continue;
    if (!found || first.committed > at->committed) *at = first;
    found = true;
  }
  return found;
}
