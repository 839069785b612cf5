/* The journal as files: parts whose size is limited, and a disk that is full for a while. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/loop.h"

typedef struct scene {
  char folder[32], path[64];
  weir_loop loop;
  weir_decision_input input;
  weir_decision decision;
} scene;

static void open_scene(scene *s) {
  memset(s, 0, sizeof *s);
  strcpy(s->folder, "/tmp/weir-journal-XXXXXX");
  cr_assert_not_null(mkdtemp(s->folder));
  (void)snprintf(s->path, sizeof s->path, "%s/journal", s->folder);
  s->loop.policy = &weir_policy_fixed;
  cr_assert_eq(weir_plan_parse("none:1:dense-ring", &s->decision.choice.plan), WEIR_OK);
}

static void close_scene(const scene *s) {
  char name[80];
  for (int part = 1; part < 8; part++) {
    (void)snprintf(name, sizeof name, "%s.%d", s->path, part);
    (void)unlink(name);
  }
  (void)unlink(s->path);
  cr_assert_eq(rmdir(s->folder), 0, "there is more than the journal's parts");
}

static weir_status write_line(scene *s, weir_journal *journal, uint64_t number) {
  s->input.decision = number;
  return weir_journal_write(journal, &s->loop, &s->input, &s->decision);
}

/* Numbers of the decisions in a file, in its order; each line is whole. */
static int numbers(const char *path, uint64_t *number, int most) {
  static char line[1 << 16];
  FILE *file = fopen(path, "r");
  int count = 0;
  if (file == NULL) return -1;
  while (count < most && fgets(line, sizeof line, file) != NULL) {
    const size_t length = strlen(line);
    unsigned long long found = 0;
    const char *const field = strstr(line, "\"decision\":");
    cr_assert(line[0] == '{' && field != NULL);
    cr_assert_eq(sscanf(field, "\"decision\":%llu,", &found), 1);
    cr_assert(length > 2 && line[length - 1] == '\n' && line[length - 2] == '}');
    number[count++] = found;
  }
  (void)fclose(file);
  return count;
}

/* Names of tensors are bytes, and JSON is UTF-8: of two to four bytes a letter stays, and what is
 * none, too long, half of a pair, beyond the last or cut off, does not. */
Test(journal, writes_utf_8) {
  static char line[1 << 16];
  scene s;
  weir_journal *journal;
  open_scene(&s);
  strcpy(s.decision.why,
         "\"\xC3\xA9\xED\x9F\xBF\xF4\x8F\xBF\xBF \x80\xC1\x81 \xED\xA0\x80 \xF4\x90\x80\x80 "
         "\xE0\x80\x80 \xF0\x8F\xBF\xBF\n\xE2\x82");
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, false), WEIR_OK);
  cr_assert_eq(write_line(&s, journal, 0), WEIR_OK);
  weir_journal_close(journal);
  FILE *file = fopen(s.path, "r");
  cr_assert(file != NULL && fgets(line, sizeof line, file) != NULL);
  (void)fclose(file);
#define NONE "\\ufffd"
  cr_assert_not_null(
      strstr(line, "\"why\":\"\\\"\xC3\xA9\xED\x9F\xBF\xF4\x8F\xBF\xBF " NONE NONE NONE
                   " " NONE NONE NONE " " NONE NONE NONE NONE " " NONE NONE NONE
                   " " NONE NONE NONE NONE "\\u000a" NONE NONE "\""),
      "%s", line);
  close_scene(&s);
}

/* A limit of so many lines' bytes: the newest are kept, in parts that follow one another. */
Test(journal, drops_its_oldest_part) {
  enum { LINES = 100, PART = 5 };
  scene s;
  struct stat found;
  uint64_t number[LINES], due = LINES - 1;
  weir_journal *journal;
  open_scene(&s);
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, false), WEIR_OK);
  cr_assert_eq(write_line(&s, journal, 10), WEIR_OK);
  weir_journal_close(journal);
  cr_assert_eq(stat(s.path, &found), 0);
  const uint64_t line = (uint64_t)found.st_size; /* with two digits, as nearly all below */
  cr_assert_eq(weir_journal_open(&journal, s.path, 4 * PART * line, false), WEIR_OK);
  for (uint64_t i = 0; i < LINES; i++) cr_assert_eq(write_line(&s, journal, i), WEIR_OK);
  weir_journal_close(journal);
  for (int part = 0; part < 4; part++) {
    char name[80];
    (void)snprintf(name, sizeof name, part ? "%s.%d" : "%s", s.path, part);
    const int count = numbers(name, number, LINES);
    cr_assert(count == PART, "part %d has %d lines", part, count);
    for (int i = count; i-- > 0;) cr_assert_eq(number[i], due--, "part %d, line %d", part, i);
    cr_assert_eq(stat(name, &found), 0);
    cr_assert_leq((uint64_t)found.st_size, PART * line);
  }
  cr_assert_eq(due, LINES - 1 - 4 * PART);
  /* Who goes on writes behind what there is; a new job leaves nothing of an old one. */
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, true), WEIR_OK);
  cr_assert_eq(write_line(&s, journal, LINES), WEIR_OK);
  weir_journal_close(journal);
  cr_assert_eq(numbers(s.path, number, LINES), PART + 1);
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, false), WEIR_OK);
  weir_journal_close(journal);
  cr_assert_eq(numbers(s.path, number, LINES), 0);
  (void)strcat(s.path, ".1");
  cr_assert_eq(numbers(s.path, number, LINES), -1);
  s.path[strlen(s.path) - 2] = '\0';
  close_scene(&s);
}

/* Where nobody reads it, it is refused and not waited for; where somebody does, lines come
 * through. */
Test(journal, into_a_pipe) {
  scene s;
  weir_journal *journal;
  char line[64] = "";
  open_scene(&s);
  cr_assert_eq(mkfifo(s.path, 0600), 0);
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, false), WEIR_E_IO);
  const int reader = open(s.path, O_RDONLY | O_NONBLOCK);
  cr_assert(reader >= 0);
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, false), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(write_line(&s, journal, 5), WEIR_OK, "%s", weir_last_error());
  cr_assert_gt(read(reader, line, sizeof line - 1), 0);
  cr_assert_eq(line[0], '{');
  weir_journal_close(journal);
  (void)close(reader);
  close_scene(&s);
}

/* As if the disk were full: what is written to fd 2 meanwhile says so, once, and how many
 * decisions it has cost. */
Test(journal, says_what_a_full_disk_has_cost) {
  enum { LOST = 3 };
  scene s;
  struct rlimit unlimited, limit;
  struct stat found;
  uint64_t number[8];
  weir_journal *journal;
  char said[2048] = "", errors[80], due[128];
  open_scene(&s);
  (void)snprintf(errors, sizeof errors, "%s.7", s.path);
  cr_assert_eq(weir_journal_open(&journal, s.path, 0, false), WEIR_OK);
  cr_assert_eq(write_line(&s, journal, 0), WEIR_OK);
  cr_assert_eq(stat(s.path, &found), 0);
  (void)fflush(stderr);
  const int before = dup(STDERR_FILENO), file = open(errors, O_RDWR | O_CREAT | O_TRUNC, 0600);
  cr_assert(before >= 0 && file >= 0);
  (void)signal(SIGXFSZ, SIG_IGN);
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  limit = unlimited;
  limit.rlim_cur = (rlim_t)found.st_size + 100; /* half a line */
  (void)dup2(file, STDERR_FILENO);
  (void)setrlimit(RLIMIT_FSIZE, &limit);
  weir_status lost[LOST];
  for (uint64_t i = 0; i < LOST; i++) lost[i] = write_line(&s, journal, 1 + i);
  (void)setrlimit(RLIMIT_FSIZE, &unlimited);
  const weir_status again = write_line(&s, journal, 1 + LOST);
  (void)fflush(stderr);
  (void)dup2(before, STDERR_FILENO);
  weir_journal_close(journal);
  cr_assert_gt(pread(file, said, sizeof said - 1, 0), 0, "nothing was said");
  for (int i = 0; i < LOST; i++) cr_assert_eq(lost[i], WEIR_E_IO);
  cr_assert_eq(again, WEIR_OK);
  cr_assert_eq(numbers(s.path, number, 8), 2);
  cr_assert(number[0] == 0 && number[1] == 1 + LOST);
  const char *first = strstr(said, "from here on");
  cr_assert(first != NULL && strstr(first + 1, "from here on") == NULL, "%s", said);
  (void)snprintf(due, sizeof due, "%s: %d decisions are missing\n", s.path, LOST);
  cr_assert_not_null(strstr(said, due), "%s", said);
  (void)close(file);
  (void)close(before);
  close_scene(&s);
}
