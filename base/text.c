/* Text files as editors of other systems leave them: a byte-order mark, lines that end in CR LF;
 * and pipes that nobody writes to, which would be waited for. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

static const char mark[] = "\xEF\xBB\xBF"; /* UTF-8's */

size_t weir_text_mark(const void *text, size_t bytes) {
  const size_t length = sizeof mark - 1;
  return bytes >= length && memcmp(text, mark, length) == 0 ? length : 0;
}

size_t weir_text_line(const char *line, size_t bytes) {
  if (bytes > 0 && line[bytes - 1] == '\n') bytes--;
  if (bytes > 0 && line[bytes - 1] == '\r') bytes--;
  return bytes;
}

bool weir_text_get(FILE *file, char *line, size_t room, size_t *bytes) {
  memset(line, '.', room); /* so that the last zero is the one that fgets has written */
  if (fgets(line, (int)room, file) == NULL) return false;
  *bytes = room - 1;
  while (line[*bytes] != '\0') --*bytes;
  return true;
}

/* Does somebody write to it?  What comes first is put back; who has opened it, and has written
 * nothing yet, will be waited for. */
static bool is_written(FILE *pipe) {
  const int first = getc(pipe);
  const bool waits = first == EOF && ferror(pipe);
  clearerr(pipe);
  return first == EOF ? waits : ungetc(first, pipe) == first;
}

weir_status weir_text_open(FILE **file, const char *path, const char *expected, bool pipes) {
  const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat found;
  const char *why = NULL;
  *file = NULL;
  if (fd < 0 || fstat(fd, &found) != 0 || (*file = fdopen(fd, "r")) == NULL)
    why = strerror(errno);
  else if (pipes && S_ISFIFO(found.st_mode))
    why = is_written(*file) ? NULL : "nobody writes to the pipe";
  else if (!S_ISREG(found.st_mode) && !pipes)
    why = "it is no regular file";
  if (why == NULL) {
    (void)fcntl(fd, F_SETFL, 0); /* else it does not wait */
    return WEIR_OK;
  }
  const weir_status status =
      weir_fail(WEIR_E_IO, "%s: cannot be opened (%s); expected %s", path, why, expected);
  if (*file != NULL)
    (void)fclose(*file);
  else if (fd >= 0)
    (void)close(fd);
  *file = NULL;
  return status;
}
