/* Writing to what may be a pipe: that nobody reads it any more is an error, and not the end of the
 * trainer's process by SIGPIPE. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

ssize_t weir_write(int file, const void *data, size_t bytes) {
  const struct timespec now = {0};
  sigset_t broken, waiting, before;
  (void)sigemptyset(&broken);
  (void)sigaddset(&broken, SIGPIPE);
  (void)pthread_sigmask(SIG_BLOCK, &broken, &before);
  const bool others = sigpending(&waiting) == 0 && sigismember(&waiting, SIGPIPE) == 1;
  const ssize_t put = write(file, data, bytes);
  const int error = errno;
  /* It is this thread's alone, and must not be there when the signal is let in again. */
  while (put < 0 && error == EPIPE && !others && sigtimedwait(&broken, NULL, &now) < 0 &&
         errno == EINTR)
    continue;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return put;
}
