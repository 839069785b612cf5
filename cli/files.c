/* Files that commands leave and show. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "cli.h"
#include "lab/out.h"

int cli_print_file(const char *command, const char *out, const char *name) {
  g_autofree char *path = g_build_filename(out, name, NULL), *text = NULL;
  g_autoptr(GError) error = NULL;
  if (!g_file_get_contents(path, &text, NULL, &error)) {
    fprintf(stderr, "%s: %s\n", command, error->message);
    return WEIR_EXIT_FAILED;
  }
  fputs(text, stdout);
  return WEIR_EXIT_DONE;
}

static weir_status write_into(const char *path, const GString *text) {
  FILE *file = fopen(path, "we");
  const gboolean bad = !file || fwrite(text->str, 1, text->len, file) != text->len;
  if ((file && fclose(file)) || bad)
    return weir_fail(WEIR_E_IO, "%s: cannot be written: %s", path, strerror(errno));
  return WEIR_OK;
}

weir_status cli_write(const char *path, const GString *text) {
  struct stat found;
  if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) return write_into(path, text);
  g_autoptr(GError) error = NULL;
  if (g_file_set_contents(path, text->str, (gssize)text->len, &error)) return WEIR_OK;
  return weir_fail(WEIR_E_IO, "%s", error->message);
}

static gboolean holds(const char *directory, const char *file) {
  g_autofree char *path = g_build_filename(directory, file, NULL);
  return g_file_test(path, G_FILE_TEST_IS_REGULAR);
}

gboolean cli_without(const char *command, const char *directory, const char *file) {
  if (holds(directory, file)) return FALSE;
  if (holds(directory, WEIR_OUT_RECORD)) {
    fprintf(stderr,
            "weir %s: %s: the run there has not been finished; expected one that has: `weir run "
            "--resume %s` goes on with it\n",
            command, directory, directory);
    return TRUE;
  }
  if (!holds(directory, "compare.json")) return FALSE;
  fprintf(stderr, "weir %s: %s: it holds a comparison; expected the folder of one of its runs\n",
          command, directory);
  return TRUE;
}
