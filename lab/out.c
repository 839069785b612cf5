/* The output folder: checked before anything is touched, cleared of an older or crashed run's files
 * before this run writes, and of this run's files when it fails. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/out.h"

static const char *const results[] = {
    "summary.json", "steps.csv", "decisions.jsonl", "report.html", "profile.csv", "groups.csv",
    "compare.json", "job",       "emulate.json",    "mpirun.log"};

/* Names that nobody else is likely to give: a folder with one of them is a run's. */
static const char *const marks[] = {"summary.json", "decisions.jsonl", "compare.json",
                                    "emulate.json"};

static weir_status unusable(const char *out, const char *why) {
  return weir_fail(WEIR_E_INVALID, "--out %s: %s; expected a folder that can be written", out, why);
}

weir_status weir_out_check(const char *out) {
  struct stat found;
  char *at = g_strdup(*out ? out : ".");
  weir_status status = WEIR_OK;
  while (stat(at, &found)) { /* up to what is there already */
    if (errno != ENOENT) {
      status = unusable(out, strerror(errno));
      break;
    }
    char *parent = g_path_get_dirname(at);
    g_free(at);
    at = parent;
  }
  if (!status && !S_ISDIR(found.st_mode)) status = unusable(out, "it is, or lies under, a file");
  if (!status && access(at, W_OK | X_OK)) status = unusable(out, strerror(errno));
  g_free(at);
  return status;
}

/* What a program that was emulated has printed. */
static bool is_log(const char *name) {
  return !strcmp(name, "mpirun.log") ||
         (!strncmp(name, "rank-", 5) && g_str_has_suffix(name, ".log"));
}

/* One of our results, or the name under which one was written when the writer was killed: GLib adds
 * a dot and six characters. */
static bool is_ours(const char *name) {
  if (!strncmp(name, ".weir-", 6) || !strncmp(name, "timings-", 8)) return true;
  if (is_log(name)) return true;
  for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
    const size_t length = strlen(results[i]);
    if (strncmp(name, results[i], length)) continue;
    if (!name[length] || (name[length] == '.' && strlen(name + length) == 7)) return true;
  }
  return false;
}

/* What a run goes on from, or would but for being finished: the hidden files. */
static bool is_hidden(const char *name) { return !strncmp(name, ".weir-", 6); }

/* Paths of files that were in a folder before its first run, under names like ours: a user's, which
 * no run of this process removes. */
static GHashTable *strangers;

static void discard(const char *out, bool hidden, bool results_too) {
  g_autoptr(GDir) folder = g_dir_open(out, 0, NULL);
  if (!folder) return;
  const char *name;
  while ((name = g_dir_read_name(folder))) {
    if (!is_ours(name) || (is_hidden(name) ? !hidden : !results_too)) continue;
    if (is_log(name) && !hidden) continue;
    g_autofree char *path = g_build_filename(out, name, NULL);
    if (!strangers || !g_hash_table_contains(strangers, path)) (void)unlink(path);
  }
}

/* Has a run, whole or not, left something here? */
static bool is_marked(const char *out) {
  g_autoptr(GDir) folder = g_dir_open(out, 0, NULL);
  const char *name;
  while (folder && (name = g_dir_read_name(folder))) {
    if (is_hidden(name)) return true;
    for (size_t i = 0; i < G_N_ELEMENTS(marks); i++)
      if (!strcmp(name, marks[i])) return true;
  }
  return false;
}

static void keep_strangers(const char *out) {
  g_autoptr(GDir) folder = g_dir_open(out, 0, NULL);
  const char *name;
  if (!strangers) strangers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  while (folder && (name = g_dir_read_name(folder)))
    if (is_ours(name)) (void)g_hash_table_add(strangers, g_build_filename(out, name, NULL));
}

static bool would_go(const char *out, const char *path) {
  g_autofree char *name = g_path_get_basename(path), *folder = g_path_get_dirname(path);
  g_autofree char *there = realpath(folder, NULL), *here = realpath(out, NULL);
  return here && there && !strcmp(here, there) && is_ours(name);
}

weir_status weir_out_spares(const char *out, const char *what, const char *path) {
  g_autofree char *target = realpath(path, NULL);
  if (!target || (!would_go(out, path) && !would_go(out, target))) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   "--out %s: the %s, %s, lies there under a result's name and would be removed; "
                   "expected another folder",
                   out, what, path);
}

void weir_out_discard(const char *out) { discard(out, true, true); }
void weir_out_empty(const char *out) { discard(out, false, true); }
void weir_out_settle(const char *out) { discard(out, true, false); }

/* On the folder itself, so that nothing is left of it; the kernel lets go of it with the last
 * process that has it.  -1 where the file system has no locks. */
static weir_status take(const char *out, int *lock, double patience_s) {
  *lock = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*lock < 0) return unusable(out, strerror(errno));
  const double until = weir_now_s() + patience_s;
  int error = 0;
  while (flock(*lock, LOCK_EX | LOCK_NB) != 0) {
    error = errno;
    if (error != EWOULDBLOCK || weir_now_s() >= until) break;
    (void)usleep(20000);
    error = 0;
  }
  if (error == 0) return WEIR_OK;
  weir_out_close(*lock);
  *lock = -1;
  if (error == EWOULDBLOCK)
    return weir_fail(WEIR_E_INVALID,
                     "--out %s: another run is writing there; expected a folder of its own, or, to "
                     "resume, that it has ended",
                     out);
  (void)fprintf(stderr, "weir: --out %s cannot be locked (%s): let no other run write there\n", out,
                strerror(error));
  return WEIR_OK;
}

weir_status weir_out_open(const char *out, int *lock) {
  *lock = -1;
  if (g_mkdir_with_parents(out, 0777)) return unusable(out, strerror(errno));
  const weir_status status = take(out, lock, 0);
  if (status) return status;
  if (!is_marked(out)) keep_strangers(out);
  weir_out_discard(out);
  return WEIR_OK;
}

weir_status weir_out_reopen(const char *out, int *lock) {
  static const double patience_s = 10; /* for the processes of one that was killed */
  *lock = -1;
  const weir_status status = take(out, lock, patience_s);
  if (status) return status;
  g_autofree char *journal = g_build_filename(out, WEIR_OUT_JOURNAL, NULL);
  g_autofree char *decisions = g_build_filename(out, "decisions.jsonl", NULL);
  if (access(journal, F_OK)) (void)rename(decisions, journal); /* it was about to be finished */
  weir_out_empty(out);
  return WEIR_OK;
}

void weir_out_close(int lock) {
  if (lock >= 0) (void)close(lock);
}

bool weir_out_trained(const char *out) {
  g_autofree char *path = g_build_filename(out, "decisions.jsonl", NULL);
  return access(path, F_OK) == 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static char *reserved(const char *out, const char *name) {
  g_autofree char *hidden = g_strconcat(".weir-", name, ".tmp", NULL);
  return g_build_filename(out, hidden, NULL);
}

weir_status weir_out_reserve(const char *out, const char *name, size_t bytes) {
  g_autofree char *path = reserved(out, name);
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const int error = file < 0 ? errno : posix_fallocate(file, 0, (off_t)bytes);
  if (file >= 0) (void)close(file);
  if (error) (void)unlink(path);
  if (!error) return WEIR_OK;
  return weir_fail(WEIR_E_IO,
                   "--out %s: %s takes up to %.1f MB, and there is no room: %s; expected a folder "
                   "with more",
                   out, name, (double)bytes / 1e6, strerror(error));
}

/* In the place that was taken for it: errno, or 0. */
static int fill(int file, const char *text) {
  const size_t bytes = strlen(text);
  for (size_t at = 0; at < bytes;) {
    const ssize_t part = write(file, text + at, bytes - at);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return part < 0 ? errno : ENOSPC;
    at += (size_t)part;
  }
  return ftruncate(file, (off_t)bytes) ? errno : 0;
}

static weir_status write_anew(const char *path, const char *text) {
  g_autoptr(GError) error = NULL;
  if (g_file_set_contents(path, text, -1, &error)) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s", error->message);
}

weir_status weir_out_write(const char *out, const char *name, const char *text) {
  g_autofree char *path = g_build_filename(out, name, NULL), *place = reserved(out, name);
  const int file = open(place, O_WRONLY | O_CLOEXEC);
  weir_status status = WEIR_OK;
  if (file < 0) {
    status = write_anew(path, text);
  } else {
    const int error = fill(file, text);
    (void)close(file);
    if (error || rename(place, path)) {
      status =
          weir_fail(WEIR_E_IO, "%s: cannot be written: %s", path, strerror(error ? error : errno));
      (void)unlink(place);
    }
  }
  return status;
}
