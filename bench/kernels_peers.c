/* Peers of the selections: what else selects the k largest of a gradient on one core. */
#include <gio/gio.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "kernels.h"

#ifdef WEIR_HAVE_NTH_ELEMENT
float weir_peer_nth_element(float *x, size_t n, size_t k); /* bench/nth_element.cc */

double weir_kernel_nth_element(kernel_bench *b, gsize k, const char **absent) {
  double ms[KERNEL_ROUNDS_MAX];
  *absent = NULL;
  for (int i = -1; i < b->rounds;
       i++) { /* it reorders its input: a new copy each time, not timed */
    memcpy(b->sum, b->e, b->n * sizeof *b->e);
    const double start = weir_thread_cpu_s();
    const float kth = weir_peer_nth_element(b->sum, b->n, k);
    if (i >= 0) ms[i] = 1e3 * (weir_thread_cpu_s() - start);
    if (!(kth >= 0)) *absent = "std::nth_element gave no magnitude";
  }
  return *absent ? -1.0 : weir_kernel_median(ms, b->rounds);
}
#else
double weir_kernel_nth_element(kernel_bench *b, gsize k, const char **absent) {
  (void)b;
  (void)k;
  *absent = "built without a C++ compiler";
  return -1.0;
}
#endif

/* Prints the milliseconds of processor time of each round.  The magnitudes are taken before the
 * clock starts.  The alarm ends it should it hang. */
static const char script[] =
    "import signal, sys, time\n"
    "signal.alarm(120)\n"
    "import torch\n"
    "n, k, rounds = map(int, sys.argv[1:4])\n"
    "torch.set_num_threads(1)\n"
    "x = torch.from_file('/proc/self/fd/3', shared=False, size=n, dtype=torch.float32).abs()\n"
    "torch.topk(x, k)\n"
    "for _ in range(rounds):\n"
    "    start = time.thread_time()\n"
    "    torch.topk(x, k)\n"
    "    print(1e3 * (time.thread_time() - start))\n";

/* A file without a name that holds e; -1 when there is none. */
static int share(const kernel_bench *b) {
  const int fd = memfd_create("weir-bench", MFD_CLOEXEC);
  const gsize bytes = b->n * sizeof *b->e;
  gsize done = 0;
  while (fd >= 0 && done < bytes) {
    const ssize_t written = write(fd, (const char *)b->e + done, bytes - done);
    if (written <= 0) {
      (void)close(fd);
      return -1;
    }
    done += (gsize)written;
  }
  return fd;
}

/* The median of the times printed by python; negative when it is not all of them. */
static double run_python(const char *python, const kernel_bench *b, gsize k) {
  const int fd = share(b);
  if (fd < 0) return -1.0;
  g_autoptr(GSubprocessLauncher) launcher =
      g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_SILENCE);
  g_subprocess_launcher_take_fd(launcher, fd, 3);
  g_autofree char *n_text = g_strdup_printf("%" G_GSIZE_FORMAT, b->n);
  g_autofree char *k_text = g_strdup_printf("%" G_GSIZE_FORMAT, k);
  g_autofree char *rounds = g_strdup_printf("%d", b->rounds);
  g_autoptr(GSubprocess) child = g_subprocess_launcher_spawn(launcher, NULL, python, "-c", script,
                                                             n_text, k_text, rounds, NULL);
  g_autofree char *output = NULL;
  if (!child || !g_subprocess_communicate_utf8(child, NULL, NULL, &output, NULL, NULL) ||
      !g_subprocess_get_successful(child))
    return -1.0;
  double ms[KERNEL_ROUNDS_MAX];
  int got = 0;
  const char *at = output;
  for (char *end = NULL; got < b->rounds; got++, at = end) {
    ms[got] = g_ascii_strtod(at, &end);
    if (end == at || !isfinite(ms[got])) return -1.0;
  }
  return weir_kernel_median(ms, got);
}

double weir_kernel_torch(kernel_bench *b, gsize k, char **absent) {
  /* The first python may be one of the user's own that lacks the distribution's packages. */
  static const char *const pythons[] = {"python3", "/usr/bin/python3"};
  *absent = NULL;
  for (gsize i = 0; i < G_N_ELEMENTS(pythons); i++) {
    const double ms = run_python(pythons[i], b, k);
    if (ms >= 0) return ms;
  }
  *absent = g_strdup("no python3 here runs it (Debian: python3-torch)");
  return -1.0;
}
