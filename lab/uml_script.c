#include "lab/uml_script.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define FOLDER_PREFIX "weir-uml-"

weir_status weir_uml_find_program(const char *name, char path[WEIR_UML_PATH]) {
  if (strchr(name, '/')) {
    char *real = realpath(name, NULL);
    if (!real || access(real, X_OK) || strlen(real) >= WEIR_UML_PATH) {
      free(real);
      return weir_fail(WEIR_E_UNSUPPORTED, "%s is not a program that can be run", name);
    }
    memcpy(path, real, strlen(real) + 1);
    free(real);
    return WEIR_OK;
  }
  const char *search = getenv("PATH");
  if (!search || !*search) search = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
  while (*search) {
    const size_t length = strcspn(search, ":");
    const int n = snprintf(path, WEIR_UML_PATH, "%.*s/%s", (int)length, search, name);
    struct stat info;
    if (length && n > 0 && n < WEIR_UML_PATH && !stat(path, &info) && S_ISREG(info.st_mode) &&
        !access(path, X_OK))
      return WEIR_OK;
    search += length;
    if (*search == ':') search++;
  }
  return weir_fail(WEIR_E_UNSUPPORTED, "%s is not in PATH", name);
}

/* Remove a folder of ours: it holds files, and folders of files (.uml/NAME). */
static void remove_tree(const char *path, int depth) {
  DIR *dir = opendir(path);
  struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    char inner[WEIR_UML_PATH];
    const int n = snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
    if (n < 0 || (size_t)n >= sizeof inner) continue;
    struct stat info;
    if (!lstat(inner, &info) && S_ISDIR(info.st_mode) && depth > 0)
      remove_tree(inner, depth - 1);
    else
      (void)unlink(inner);
  }
  if (dir) closedir(dir);
  (void)rmdir(path);
}

static int lock_folder(const char *path) {
  char lock[WEIR_UML_PATH];
  const int n = snprintf(lock, sizeof lock, "%s/lock", path);
  if (n < 0 || (size_t)n >= sizeof lock) return -1;
  const int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
    close(fd);
    return -1;
  }
  return fd;
}

/* A run that was killed could not clean up: its folder is there, its lock is not held. */
static void remove_stale(const char *base) {
  DIR *dir = opendir(base);
  struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    if (strncmp(entry->d_name, FOLDER_PREFIX, strlen(FOLDER_PREFIX))) continue;
    char path[WEIR_UML_PATH];
    const int n = snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
    struct stat info;
    if (n < 0 || (size_t)n >= sizeof path || lstat(path, &info)) continue;
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid()) continue;
    /* A folder without a lock may be one that is being made this moment. */
    char lock[WEIR_UML_PATH + 8];
    (void)snprintf(lock, sizeof lock, "%s/lock", path);
    if (access(lock, F_OK)) continue;
    const int fd = lock_folder(path);
    if (fd < 0) continue;
    remove_tree(path, 3);
    close(fd);
  }
  if (dir) closedir(dir);
}

weir_status weir_uml_folder_make(weir_uml_folder *folder) {
  const char *base = getenv("TMPDIR");
  if (!base || base[0] != '/' || strlen(base) > 128 || access(base, W_OK)) base = "/tmp";
  folder->lock = -1;
  remove_stale(base);
  (void)snprintf(folder->path, sizeof folder->path, "%s/" FOLDER_PREFIX "XXXXXX", base);
  if (!mkdtemp(folder->path))
    return weir_fail(WEIR_E_IO, "cannot make a folder in %s: %s", base, strerror(errno));
  folder->lock = lock_folder(folder->path);
  if (folder->lock < 0) {
    const int error = errno;
    (void)rmdir(folder->path);
    return weir_fail(WEIR_E_IO, "cannot lock %s: %s", folder->path, strerror(error));
  }
  return WEIR_OK;
}

void weir_uml_folder_remove(weir_uml_folder *folder) {
  remove_tree(folder->path, 3);
  if (folder->lock >= 0) close(folder->lock);
  folder->lock = -1;
}

/* 'text' for the shell. */
static void quote(FILE *file, const char *text) {
  fputc('\'', file);
  for (; *text; text++)
    if (*text == '\'')
      fputs("'\\''", file);
    else
      fputc(*text, file);
  fputc('\'', file);
}

/* tmpfs hides the host's /run and /dev/shm: what lies there is reached through other folders. */
static const struct {
  const char *hidden, *seen;
} moved[] = {{"/run/", "/run/host/"}, {"/dev/shm/", "/run/shm/"}};
enum { MOVED = sizeof moved / sizeof *moved };

char *weir_uml_seen_at(const char *path) {
  for (size_t i = 0; i < MOVED; i++)
    if (g_str_has_prefix(path, moved[i].hidden))
      return g_strconcat(moved[i].seen, path + strlen(moved[i].hidden), NULL);
  return g_strdup(path);
}

/* A link from where the host has it.  Of /run/shm, which is /dev/shm on the host as well, and of
 * what is not there, nothing has to be made. */
static weir_status link_to_host(FILE *file, const char *hidden, const char *seen,
                                const char *name) {
  static const char *const own[] = {"host", "netns", "out", "tmp", "weir"};
  g_autofree char *path = g_strconcat(hidden, name, NULL);
  if (access(path, F_OK) || !strcmp(path, "/run/shm")) return WEIR_OK;
  for (size_t i = 0; i < G_N_ELEMENTS(own) && !strcmp(hidden, "/run/"); i++)
    if (!strcmp(name, own[i]))
      return weir_fail(WEIR_E_INVALID,
                       "%s: User-Mode Linux has a folder of its own there; expected files that the "
                       "run reads to lie elsewhere",
                       path);
  g_autofree char *host = g_strconcat(seen, name, NULL);
  fputs("b ln -s ", file);
  quote(file, host);
  fputc(' ', file);
  quote(file, path);
  fputs(" 2>/dev/null\n", file); /* it may be there */
  return WEIR_OK;
}

/* Does a path begin here, and not in the middle of another one? */
static bool begins_path(const char *text, const char *at) {
  return at == text || !(g_ascii_isalnum(at[-1]) || strchr("/._-~", at[-1]));
}

/* Every path of the host's that a text of the user's names is seen where it is there. */
static weir_status show_paths(FILE *file, const char *text) {
  for (size_t i = 0; i < MOVED; i++)
    for (const char *at = text; (at = strstr(at, moved[i].hidden)) != NULL;) {
      const bool begins = begins_path(text, at);
      at += strlen(moved[i].hidden);
      g_autofree char *name = g_strndup(at, strcspn(at, "/:;,=\"' \t\n"));
      if (!begins || !*name) continue;
      const weir_status status = link_to_host(file, moved[i].hidden, moved[i].seen, name);
      if (status != WEIR_OK) return status;
    }
  return WEIR_OK;
}

static void quote_path(FILE *file, const char *path) {
  g_autofree char *seen = weir_uml_seen_at(path);
  quote(file, seen);
}

/* Load a module and before it what it needs; modules.dep lists that nearest first.  A kernel that
 * has no modules has built in what it has; whoever needs what it lacks says so. */
static const char script_head[] =
    "unset hostfs mem\n"
    "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    "b() { $busybox \"$@\"; }\n"
    "give_up() { echo \"weir-uml: $*\" >/dev/tty1; b poweroff -f; b sleep 60; }\n"
    "b mount -t proc none /proc || give_up 'cannot mount /proc'\n"
    "b stty -F /dev/tty0 raw -echo\n"
    "b stty -F /dev/tty1 raw -echo\n"
    "b mount -t sysfs none /sys || give_up 'cannot mount /sys'\n"
    "b mount -t tmpfs none /run || give_up 'cannot mount a tmpfs'\n"
    "b mkdir -p /run/out /run/host /run/shm /run/tmp /run/weir /run/netns /dev/shm /dev/pts\n"
    "b mount -t tmpfs none /dev/shm\n"
    "b mount -t devpts none /dev/pts\n"
    "b mount -t hostfs none /run/host -o /run\n"
    "b mount -o remount,ro /run/host\n"
    "b mount -t hostfs none /run/shm -o /dev/shm && b mount -o remount,ro /run/shm\n"
    "m=/usr/lib/uml/modules/$(b uname -r)\n"
    "names='sch_htb sch_netem veth bridge'\n"
    "[ -r $m/modules.dep ] || names=\n"
    "for name in $names; do\n"
    "  files=$(b grep \"/$name.ko:\" $m/modules.dep | b head -n 1 | b tr -d :)\n"
    "  [ -n \"$files\" ] || b grep -qs \"/$name.ko\" $m/modules.builtin ||\n"
    "    give_up \"there is no module $name in $m\"\n"
    "  order=\n"
    "  for file in $files; do order=\"$file $order\"; done\n"
    "  for file in $order; do\n"
    "    loaded=$(b basename $file .ko | b tr - _)\n"
    "    [ -d /sys/module/$loaded ] || b insmod $m/$file || give_up \"cannot load $file\"\n"
    "  done\n"
    "done\n"
    "b ip link set lo up\n"
    "b hostname weir\n"
    "ulimit -n 65536 2>/dev/null\n";

weir_status weir_uml_write_init(const weir_uml_folder *folder, const weir_uml_config *config,
                                bool keep_terminal) {
  char busybox[WEIR_UML_PATH], program[WEIR_UML_PATH], cwd[WEIR_UML_PATH], path[WEIR_UML_PATH];
  char out[WEIR_UML_PATH] = "", *real = NULL;
  weir_status status = weir_uml_find_program("busybox", busybox);
  if (status == WEIR_OK) status = weir_uml_find_program(config->argv[0], program);
  if (status != WEIR_OK) return status;
  if (config->out &&
      (!(real = realpath(config->out, NULL)) || strlen(real) >= sizeof out || strchr(real, ','))) {
    free(real);
    return weir_fail(WEIR_E_INVALID,
                     "%s: User-Mode Linux cannot mount it; expected a folder of a shorter path, "
                     "without a comma in it",
                     config->out);
  }
  if (real) memcpy(out, real, strlen(real) + 1);
  free(real);
  if (!getcwd(cwd, sizeof cwd)) (void)snprintf(cwd, sizeof cwd, "/");
  (void)snprintf(path, sizeof path, "%s/init", folder->path);
  FILE *file = fopen(path, "we");
  if (!file) return weir_fail(WEIR_E_IO, "cannot write %s: %s", path, strerror(errno));
  fprintf(file, "#!%s sh\nbusybox=%s\n%s", busybox, busybox, script_head);
  fputs("b mount -t hostfs none /run/weir -o ", file);
  quote(file, folder->path);
  fputs(" || give_up 'cannot mount the folder of the run'\n", file);
  if (config->out) {
    fputs("b mount -t hostfs none /run/out -o ", file);
    quote(file, out);
    fputs(" || give_up 'cannot mount the output folder'\n", file);
  }
  for (const char *const *p = config->paths; p && *p && status == WEIR_OK; p++)
    status = show_paths(file, *p);
  if (status != WEIR_OK) {
    fclose(file);
    return status;
  }
  fputs("export HOME=/run/tmp TMPDIR=/run/tmp\n", file);
  for (const char *const *e = config->environment; e && *e; e++) {
    fputs("export ", file);
    quote(file, *e);
    fputc('\n', file);
  }
  /* `weir top` of the host sees nothing of what is in here, and no folder for it can be made. */
  fputs("export WEIR_STATUS=\"${WEIR_STATUS:-${WEIR_STATUS_DIR:+on}}\"\n", file);
  fputs("[ -n \"$WEIR_STATUS\" ] || WEIR_STATUS=off\n", file);
  fputs("cd ", file);
  quote_path(file, cwd);
  fputs(" 2>/dev/null || cd /\nrun() {\n  ", file);
  quote_path(file, program);
  for (const char *const *a = config->argv + 1; *a; a++) {
    fputc(' ', file);
    quote(file, *a);
  }
  fputs(" </dev/null\n  echo $? >/run/weir/exit\n}\n", file);
  fputs(keep_terminal ? "run >/dev/tty0 2>/dev/tty1\n"
                      : "{ run 2>&3 | b cat >/dev/tty0; } 3>&1 | b cat >/dev/tty1\n",
        file);
  fputs(
      "cd /\nb sync\nb umount /run/out 2>/dev/null\nb umount /run/weir\nb poweroff -f\n"
      "b sleep 60\n",
      file);
  const bool bad = ferror(file) != 0;
  if (fclose(file) || bad || chmod(path, 0700))
    return weir_fail(WEIR_E_IO, "cannot write %s: %s", path, strerror(errno));
  return WEIR_OK;
}

int weir_uml_read_exit(const weir_uml_folder *folder) {
  char path[WEIR_UML_PATH];
  (void)snprintf(path, sizeof path, "%s/exit", folder->path);
  FILE *file = fopen(path, "re");
  int code = -1;
  if (file && (fscanf(file, "%d", &code) != 1 || code < 0 || code > 255)) code = -1;
  if (file) fclose(file);
  return code;
}
