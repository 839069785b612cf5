/* Runs Criterion tests without Criterion's own runner.  For ThreadSanitizer: the runner keeps its
 * arena at addresses that the sanitizer reserves, and aborts.  And for other processors, for which
 * there is no libcriterion.  Each test runs in a process of its own, with its suite's and its own
 * fixtures, and expected signal or exit code; the definitions below take the place of
 * libcriterion's.  ThreadSanitizer makes tests ten times as long, and sees a race in one run or
 * the next: of a file's tests half is drawn, the first at the least (sampled.h). */
#include <criterion/criterion.h>
#include <criterion/options.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sampled.h"

enum { EXIT_ASSERT = 101, EXIT_SKIPPED = 102 };

/* Filled by the linker: one pointer for each Test() and TestSuite().  Weak: a file may
 * have none. */
extern struct criterion_test *__start_cr_tst[] __attribute__((weak));
extern struct criterion_test *__stop_cr_tst[] __attribute__((weak));
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

static const struct criterion_test *current;
static const struct criterion_test_extra_data *current_suite; /* NULL: no TestSuite() */
static atomic_int failed;

void criterion_send_assert(struct criterion_assert_stats *stats) {
  if (stats->passed) return;
  fprintf(stderr, "%s:%u: %s/%s: %s\n", stats->file, stats->line, current->category, current->name,
          stats->message ? stats->message : "");
}
void criterion_abort_test(void) { _exit(EXIT_ASSERT); }
void criterion_continue_test(void) { atomic_store(&failed, 1); }
void cri_asserts_passed_incr(void) {}

/* Messages of failed assertions: the test's own, else the condition's text. */
struct criterion_options criterion_options;
char *cr_translate_assert_msg(int kind, ...) {
  va_list args;
  va_start(args, kind);
  const char *condition = va_arg(args, const char *);
  char *copy = strdup(condition);
  va_end(args);
  return copy;
}
int cr_asprintf(char **text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int length = vasprintf(text, format, args);
  va_end(args);
  return length;
}
void cr_asprintf_free(char *text) { free(text); }

void criterion_skip_test(const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vfprintf(stderr, format, args);
  va_end(args);
  _exit(EXIT_SKIPPED);
}

void criterion_internal_test_setup(void) {
  if (current_suite && current_suite->init) current_suite->init();
  if (current->data->init) current->data->init();
}
void criterion_internal_test_main(void (*run)(void)) { run(); }
void criterion_internal_test_teardown(void) {
  if (current->data->fini) current->data->fini();
  if (current_suite && current_suite->fini) current_suite->fini();
}

static const struct criterion_test_extra_data *find_suite(const char *name) {
  for (struct criterion_suite **s = __start_cr_sts; s < __stop_cr_sts; s++)
    if (*s && !strcmp((*s)->name, name)) return (*s)->data;
  return NULL;
}

static bool drawn(int run) {
#if defined(__SANITIZE_THREAD__)
  return run == 0 || sampled_one_in(2);
#else
  (void)run;
  return true;
#endif
}

/* In the child: never returns. */
static void run_child(void) {
  current->test();
  exit(atomic_load(&failed) ? EXIT_ASSERT : 0);
}

/* "passed", "skipped" or why it failed. */
static const char *verdict(int status) {
  static char why[64];
  const int want_signal = current->data->signal, want_code = current->data->exit_code;
  if (WIFSIGNALED(status) && want_signal && WTERMSIG(status) == want_signal) return "passed";
  if (WIFEXITED(status) && !want_signal) {
    if (WEXITSTATUS(status) == want_code) return "passed";
    if (WEXITSTATUS(status) == EXIT_SKIPPED) return "skipped";
  }
  if (WIFSIGNALED(status))
    (void)snprintf(why, sizeof why, "FAILED: signal %d", WTERMSIG(status));
  else
    (void)snprintf(why, sizeof why, "FAILED: exit code %d", WEXITSTATUS(status));
  return why;
}

int main(void) {
  int run = 0, left = 0, failures = 0;
  for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
    if (!*t) continue;
    current = *t;
    current_suite = find_suite(current->category);
    if (current->data->disabled || (current_suite && current_suite->disabled)) continue;
    if (!drawn(run)) {
      left++;
      continue;
    }
    run++;
    const char *result = "FAILED: parameterized tests are not supported here";
    if (current->data->kind_ == CR_TEST_NORMAL) {
      printf("%s/%s: ", current->category, current->name);
      fflush(NULL);
      const pid_t child = fork();
      if (child == 0) run_child();
      int status = 0;
      result =
          child > 0 && waitpid(child, &status, 0) == child ? verdict(status) : "FAILED: no process";
    }
    failures += !strncmp(result, "FAILED", 6);
    printf("%s\n", result);
  }
  printf("%d tests, %d failures, %d not drawn\n", run, failures, left);
  return run == 0 || failures > 0;
}
