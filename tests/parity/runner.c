/* Criterion's runner, unless there is no device: then one line that says so, and exit code 77.  The
 * question is asked in a child, because CUDA does not survive the forks of the tests. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"

enum { SKIPPED = 77 };

int main(int argc, char *argv[]) {
  pid_t child = fork();
  if (child == 0) _exit(weir_cuda_devices() > 0 ? 0 : SKIPPED);
  int how = 0;
  if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how)) {
    fputs("asking for CUDA devices failed\n", stderr);
    return 1;
  }
  if (WEXITSTATUS(how) == SKIPPED) {
    puts("skipped: no CUDA device here");
    return SKIPPED;
  }
  struct criterion_test_set *tests = criterion_initialize();
  int result = 0;
  if (criterion_handle_args(argc, argv, true)) result = !criterion_run_all_tests(tests);
  criterion_finalize(tests);
  return result;
}
