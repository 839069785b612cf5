/* The pieces that let others look inside: log lines, status blocks, and phases. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/trace.h"
#include "base/trace_file.h"
#include "collectives/told.h"
#include "session/status.h"

typedef struct heard {
  int lines, rank;
  uint64_t step;
  weir_log_level level;
  char text[200];
} heard;

static void hear(void *user, const weir_log_line *line) {
  heard *h = user;
  h->lines++;
  h->rank = line->rank;
  h->step = line->step;
  h->level = line->level;
  (void)snprintf(h->text, sizeof h->text, "%s", line->text);
}

Test(inside, log_lines) {
  heard h = {0};
  weir_scope scope;
  cr_assert_eq(unsetenv("WEIR_LOG"), 0);
  weir_log_set(hear, &h);
  weir_log(WEIR_LOG_INFO, "no");
  cr_assert_eq(h.lines, 0, "warn is the default");
  weir_log(WEIR_LOG_WARN, "yes %d", 7);
  cr_assert_eq(h.lines, 1);
  cr_assert_str_eq(h.text, "yes 7");
  cr_assert_eq(h.rank, -1);
  cr_assert_eq(weir_log_set_level(WEIR_LOG_TRACE), WEIR_OK);
  weir_scope_open(&scope, 3);
  weir_scope_step(&scope, 12);
  weir_scope *before = weir_scope_enter(&scope);
  cr_assert(weir_log_on(WEIR_LOG_TRACE));
  weir_log(WEIR_LOG_TRACE, "deep");
  weir_scope_leave(before);
  cr_assert_eq(h.rank, 3);
  cr_assert_eq(h.step, 12);
  cr_assert_eq(h.level, WEIR_LOG_TRACE);
  cr_assert_eq(weir_log_set_level(WEIR_LOG_ERROR), WEIR_OK);
  cr_assert(!weir_log_on(WEIR_LOG_WARN));
  weir_log(WEIR_LOG_WARN, "no more");
  cr_assert_eq(h.lines, 2);
  cr_assert_eq(weir_log_set_level((weir_log_level)5), WEIR_E_INVALID);
  cr_assert_eq(weir_log_set_level((weir_log_level)-1), WEIR_E_INVALID);
  weir_log_set(NULL, NULL);
}

/* What is set to nothing is not set. */
Test(inside, the_limit_of_a_trace) {
  static const struct {
    const char *text;
    weir_status due;
  } limits[] = {{"", WEIR_OK},           {"1", WEIR_OK},         {"1048576", WEIR_OK},
                {"0", WEIR_E_INVALID},   {"-1", WEIR_E_INVALID}, {"1048577", WEIR_E_INVALID},
                {"1 MB", WEIR_E_INVALID}};
  cr_assert_eq(setenv("WEIR_TRACE", "/dev/null", 1), 0);
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    weir_tracer *tracer = NULL;
    cr_assert_eq(setenv("WEIR_TRACE_MB", limits[i].text, 1), 0);
    cr_assert_eq(weir_tracer_open(&tracer, 0), limits[i].due, "'%s'", limits[i].text);
    weir_tracer_close(tracer);
  }
}

/* Nobody reads it: the trace is refused, and not waited for. */
Test(inside, a_trace_into_a_pipe) {
  char folder[] = "/tmp/weir-inside-XXXXXX", path[64];
  weir_tracer *tracer = NULL;
  cr_assert_not_null(mkdtemp(folder));
  (void)snprintf(path, sizeof path, "%s/pipe", folder);
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_assert_eq(setenv("WEIR_TRACE", path, 1), 0);
  cr_assert_eq(weir_tracer_open(&tracer, 0), WEIR_E_IO);
  cr_assert(strstr(weir_last_error(), path), "%s", weir_last_error());
  /* Or no more: the trace ends, and not the process. */
  const int reader = open(path, O_RDONLY | O_NONBLOCK);
  cr_assert_eq(weir_tracer_open(&tracer, 0), WEIR_OK, "%s", weir_last_error());
  (void)close(reader);
  weir_tracer_close(tracer);
  cr_assert_eq(unlink(path) | rmdir(folder), 0);
}

/* Each rank once, however many blocks its messages are and in whatever order they come. */
Test(inside, a_rank_is_waited_for_once) {
  static const weir_transport_ops ops = {.name = "none"};
  weir_transport t = {.ops = &ops, .rank = 1, .size = 70};
  static const int from[] = {0, 3, 2, 0, 3, 2, 69, 69, 64, 5};
  weir_recv recv[10] = {0};
  for (int i = 0; i < 10; i++) recv[i].peer = from[i];
  weir_scope scope;
  weir_scope_open(&scope, 1);
  weir_scope *before = weir_scope_enter(&scope);
  (void)weir_told_begin(&t, NULL, 0, recv, 6);
  cr_assert_eq(scope.live->waits, 3);
  for (int i = 0; i < 3; i++) cr_assert_eq(scope.live->wait_peer[i], from[i]);
  (void)weir_told_begin(&t, NULL, 0, recv, 10);
  cr_assert_eq(scope.live->waits, 6);
  cr_assert_eq(scope.live->wait_peer[3], 69);
  (void)weir_told_begin(&t, NULL, 0, NULL, 0);
  cr_assert_eq(scope.live->waits, 69);
  weir_scope_leave(before);
}

Test(inside, a_wrong_level_is_said_once) {
  heard h = {0};
  cr_assert_eq(setenv("WEIR_LOG", "loud", 1), 0);
  weir_log_set(hear, &h);
  for (int i = 0; i < 3; i++) weir_log_open();
  cr_assert_eq(h.lines, 1);
  cr_assert_eq(h.level, WEIR_LOG_ERROR);
  cr_assert_not_null(strstr(h.text, "\"loud\""));
  weir_log_set(NULL, NULL);
}

static void expect_phase(const weir_scope *scope, const char *due) {
  char phase[9];
  weir_status_phase(scope->live, phase);
  cr_assert_str_eq(phase, due);
}

Test(inside, phases) {
  weir_scope scope;
  weir_scope_open(&scope, 0);
  weir_scope *before = weir_scope_enter(&scope);
  weir_scope_phase(&scope, "compute");
  weir_trace_begin("feed", 0);
  expect_phase(&scope, "feed");
  weir_trace_begin("exchange", 0);
  expect_phase(&scope, "exchange");
  weir_trace_end();
  expect_phase(&scope, "feed");
  weir_trace_end();
  expect_phase(&scope, "compute");
  for (int i = 0; i < 40; i++) weir_trace_begin("deep", 0);
  for (int i = 0; i < 40; i++) weir_trace_end();
  expect_phase(&scope, "compute");
  weir_scope_leave(before);
}

/* --- status blocks --------------------------------------------------------------------------- */

enum { RANKS = 6, ROUNDS = 20000 };

static void *write_states(void *user) {
  weir_status_block *block = user;
  for (uint64_t i = 1; i <= ROUNDS; i++) {
    weir_status_facts facts = {.steps = i, .wire_bytes = 3 * i, .world_size = RANKS};
    weir_status_rank row[RANKS];
    for (int r = 0; r < RANKS; r++) row[r] = (weir_status_rank){.wait_s = (double)i};
    weir_status_publish(block, &facts, row);
  }
  return NULL;
}

static void use_folder(char path[64]) {
  (void)strcpy(path, "/tmp/weir-inside-XXXXXX");
  cr_assert_not_null(mkdtemp(path));
  cr_assert_eq(setenv("WEIR_STATUS_DIR", path, 1), 0);
}

/* Whoever reads while another thread writes sees one state, not parts of two. */
Test(inside, states_are_whole) {
  char folder[64];
  weir_status_file file;
  pthread_t thread;
  use_folder(folder);
  cr_assert_eq(weir_status_open(&file, 9, 0, RANKS), WEIR_OK);
  cr_assert_geq(file.file, 0);
  cr_assert_eq(pthread_create(&thread, NULL, write_states, file.block), 0);
  uint64_t last = 0;
  while (last < ROUNDS) {
    weir_status_facts facts;
    weir_status_rank row[RANKS];
    size_t rows = 0;
    if (!weir_status_read(file.block, &facts, row, RANKS, &rows)) continue;
    cr_assert_geq(facts.steps, last);
    last = facts.steps;
    cr_assert_eq(facts.wire_bytes, 3 * last);
    for (size_t r = 0; r < rows; r++) cr_assert_eq(row[r].wait_s, (double)last);
  }
  cr_assert_eq(pthread_join(thread, NULL), 0);
  weir_status_close(&file);
  cr_assert_eq(rmdir(folder), 0, "the file is left");
}

/* What is not a block of this version is not one. */
Test(inside, wrong_blocks) {
  char folder[64];
  weir_status_file file;
  weir_status_facts facts = {.steps = 1, .world_size = RANKS};
  weir_status_rank row[RANKS] = {{0}};
  size_t rows = 0;
  use_folder(folder);
  cr_assert_eq(weir_status_open(&file, 9, 0, RANKS), WEIR_OK);
  weir_status_publish(file.block, &facts, row);
  facts.world_size = RANKS + 1; /* as a file may say */
  memcpy(file.block->words, &facts, sizeof facts);
  cr_assert(!weir_status_read(file.block, &facts, row, RANKS, &rows));
  facts.world_size = -1;
  memcpy(file.block->words, &facts, sizeof facts);
  cr_assert(!weir_status_read(file.block, &facts, row, RANKS, &rows));
  /* This process' own lock is none to itself, so that the file counts as left behind. */
  cr_assert_null(weir_status_load(file.path));
  cr_assert_neq(access(file.path, F_OK), 0);
  weir_status_close(&file);
  cr_assert_eq(rmdir(folder), 0);
}

/* Of $XDG_RUNTIME_DIR that is not there, or not to be written to, a rank warns once, and keeps its
 * state where weir top looks as well. */
static void without_runtime_folder(const char *runtime) {
  char temporary[80], log[64] = "/tmp/weir-inside-log-XXXXXX", text[1024] = "";
  weir_status_file file[2];
  const int out = mkstemp(log), kept = dup(STDERR_FILENO);
  cr_assert_eq(unsetenv("WEIR_STATUS_DIR") | setenv("XDG_RUNTIME_DIR", runtime, 1), 0);
  (void)snprintf(temporary, sizeof temporary, "/tmp/weir-%u/", (unsigned)geteuid());
  (void)dup2(out, STDERR_FILENO);
  for (int i = 0; i < 2; i++)
    cr_assert_eq(weir_status_open(&file[i], 9, 0, RANKS), WEIR_OK, "%s", weir_last_error());
  (void)dup2(kept, STDERR_FILENO);
  cr_assert_gt(pread(out, text, sizeof text - 1, 0), 0, "nothing is warned of");
  for (int i = 0; i < 2; i++) {
    cr_assert_geq(file[i].file, 0, "no file");
    cr_assert(strncmp(file[i].path, temporary, strlen(temporary)) == 0, "%s", file[i].path);
    cr_assert_eq(access(file[i].path, F_OK), 0);
    weir_status_close(&file[i]);
  }
  cr_assert(strstr(text, "warn") && strstr(text, runtime) && strstr(text, temporary), "%s", text);
  cr_assert(strchr(text, '\n') == strrchr(text, '\n'), "once: %s", text);
  (void)close(out);
  (void)close(kept);
  (void)unlink(log);
}

Test(inside, a_runtime_folder_that_is_not_there) { without_runtime_folder("/nowhere/run"); }

/* As of another session: something of that name, but no folder of ours. */
Test(inside, a_runtime_folder_that_is_of_no_use) {
  char folder[64], weir[80];
  use_folder(folder);
  (void)snprintf(weir, sizeof weir, "%s/weir", folder);
  const int file = creat(weir, 0600);
  cr_assert_geq(file, 0);
  (void)close(file);
  without_runtime_folder(folder);
  cr_assert_eq(unlink(weir) | rmdir(folder), 0);
}

Test(inside, folders) {
  char folder[64], path[400];
  use_folder(folder);
  cr_assert_eq(weir_status_folder(0, path, sizeof path, false), WEIR_OK);
  cr_assert_str_eq(path, folder);
  cr_assert_eq(weir_status_folder(1, path, sizeof path, false), WEIR_E_INVALID);
  cr_assert_eq(chmod(folder, 0777), 0);
  cr_assert_eq(weir_status_folder(0, path, sizeof path, true), WEIR_E_INVALID);
  cr_assert_eq(rmdir(folder), 0);
  cr_assert_eq(weir_status_folder(0, path, sizeof path, false), WEIR_E_IO);
  cr_assert_eq(symlink("/tmp", folder), 0);
  cr_assert_eq(weir_status_folder(0, path, sizeof path, true), WEIR_E_INVALID);
  cr_assert_eq(unlink(folder), 0);
  /* A login looks where a batch job, which has no XDG_RUNTIME_DIR, keeps its own. */
  char due[WEIR_STATUS_FOLDERS][80];
  (void)snprintf(due[0], sizeof due[0], "%s/weir", folder);
  (void)snprintf(due[1], sizeof due[1], "/run/user/%u/weir", (unsigned)geteuid());
  (void)snprintf(due[2], sizeof due[2], "/tmp/weir-%u", (unsigned)geteuid());
  cr_assert_eq(unsetenv("WEIR_STATUS_DIR") | setenv("XDG_RUNTIME_DIR", folder, 1), 0);
  for (int i = 0; i < WEIR_STATUS_FOLDERS; i++) {
    (void)weir_status_folder(i, path, sizeof path, false);
    cr_assert_str_eq(path, due[i]);
  }
  use_folder(folder);
  cr_assert_eq(rmdir(folder), 0);
  cr_assert_eq(setenv("WEIR_STATUS", "maybe", 1), 0);
  weir_status_file file;
  cr_assert_eq(weir_status_open(&file, 9, 0, RANKS), WEIR_E_INVALID);
  weir_status_close(&file);
  cr_assert_eq(setenv("WEIR_STATUS", "off", 1), 0);
  cr_assert_eq(weir_status_open(&file, 9, 0, RANKS), WEIR_OK);
  cr_assert_eq(file.file, -1);
  cr_assert_not_null(file.block);
  weir_status_close(&file);
}
