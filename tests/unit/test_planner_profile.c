/* Tensor profiles: what is read, and that every bad one is refused with its file and line. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../held.h"
#include "plan_files.h"
#include "planner/csv.h"
#include "planner/profile.h"

#define HEADER "tensor,numel,gap_us\n"

Test(planner_profile, reads_names_sizes_and_gaps) {
  char path[64];
  const char text[] = HEADER "fc.bias,10,0\r\nfc.weight,2560,72.5\nbn.weight,64,5";
  write_plan_file(path, text, sizeof text - 1);
  weir_profile profile;
  cr_assert_eq(weir_profile_load(&profile, path), WEIR_OK, "%s", weir_last_error());
  unlink(path);
  cr_assert_eq(profile.count, 3u);
  cr_assert_str_eq(profile.tensors[0].name, "fc.bias");
  cr_assert_str_eq(profile.tensors[2].name, "bn.weight");
  cr_assert_eq(weir_profile_bytes(&profile, 1), 10240.0);
  double ready[4], bytes[4];
  weir_profile_sums(&profile, ready, bytes);
  cr_assert_eq(ready[0], 0.0);
  cr_assert_float_eq(ready[3], 77.5e-6, 1e-18);
  cr_assert_eq(bytes[3], 4.0 * (10 + 2560 + 64));
  weir_profile_free(&profile);
  cr_assert_eq(profile.count, 0u);
}

typedef struct bad_profile {
  const char *text;
  size_t bytes; /* 0: up to the terminator */
  size_t line;  /* the message names it */
  const char *says;
} bad_profile;

static const bad_profile bad[] = {
    {"", 0, 1, "header 'tensor,numel,gap_us'"},
    {"\n", 0, 1, "header"},
    {"tensor,numel\na,1\n", 0, 1, "header"},
    {"a,1,2\n", 0, 1, "header"},
    {HEADER, 0, 2, "no rows"},
    {HEADER "a,1\n", 0, 2, "2 columns: expected the 3"},
    {HEADER "a,1,2,3\n", 0, 2, "4 columns"},
    {HEADER "a,1,0\n\nb,1,0\n", 0, 3, "1 columns"},
    {HEADER "a,1,0\n,1,0\n", 0, 3, "name"},
    {HEADER "a,1,-1\n", 0, 2, "'-1': expected a number from 0"},
    {HEADER "a,1,nan\n", 0, 2, "'nan'"},
    {HEADER "a,1,inf\n", 0, 2, "'inf'"},
    {HEADER "a,1,\n", 0, 2, "expected a number"},
    {HEADER "a,1,5us\n", 0, 2, "'5us'"},
    {HEADER "a,1, 5\n", 0, 2, "' 5'"},
    {HEADER "a,1,2e9\n", 0, 2, "to 1e+09"},
    {HEADER "a,0,1\n", 0, 2, "from 1"},
    {HEADER "a,-4,1\n", 0, 2, "from 1"},
    {HEADER "a,1.5,1\n", 0, 2, "whole"},
    {HEADER "a,nan,1\n", 0, 2, "'nan'"},
    {HEADER "a,1e300,1\n", 0, 2, "'1e300'"},
    {HEADER "a,1,1\nb,1,1\na,2,1\n", 0, 4, "on line 2 already"},
    {HEADER "a,1,1\nb\0,1,1\n", sizeof HEADER + 12, 3, "unprintable"},
    {HEADER "a\tb,1,1\n", 0, 2, "unprintable"},
    {HEADER "\xc3\xa9,1,1\n", 0, 2, "unprintable"},
};

Test(planner_profile, every_bad_profile_names_file_and_line) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char path[64], where[96];
    write_plan_file(path, bad[i].text, bad[i].bytes ? bad[i].bytes : strlen(bad[i].text));
    weir_profile profile;
    cr_assert_eq(weir_profile_load(&profile, path), WEIR_E_PARSE, "case %zu", i);
    unlink(path);
    cr_assert_eq(profile.count, 0u);
    snprintf(where, sizeof where, "%s:%zu: ", path, bad[i].line);
    cr_assert(!strncmp(weir_last_error(), where, strlen(where)), "case %zu: %s", i,
              weir_last_error());
    cr_assert(strstr(weir_last_error(), bad[i].says), "case %zu: %s", i, weir_last_error());
    cr_assert(strstr(weir_last_error(), "expected"), "case %zu: %s", i, weir_last_error());
  }
}

Test(planner_profile, absent_and_unreadable_files) {
  weir_profile profile;
  cr_assert_eq(weir_profile_load(&profile, "/nowhere/profile.csv"), WEIR_E_IO);
  cr_assert(strstr(weir_last_error(), "/nowhere/profile.csv"));
  cr_assert_eq(weir_profile_load(&profile, "/"), WEIR_E_IO);
}

/* A pipe is read, as a shell makes one of a command's output; one that nobody writes to is not
 * waited for. */
Test(planner_profile, from_a_pipe) {
  weir_profile profile;
  char path[64];
  int ends[2];
  strcpy(path, "/tmp/weir-plan-XXXXXX");
  close(mkstemp(path));
  unlink(path);
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_assert_eq(weir_profile_load(&profile, path), WEIR_E_IO);
  cr_assert_not_null(strstr(weir_last_error(), "(nobody writes to the pipe)"));
  unlink(path);
  cr_assert_eq(pipe(ends), 0);
  cr_assert_gt(write(ends[1], HEADER "a,1,2\n", strlen(HEADER "a,1,2\n")), 0);
  close(ends[1]);
  (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
  cr_assert_eq(weir_profile_load(&profile, path), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(profile.count, 1u);
  weir_profile_free(&profile);
  close(ends[0]);
}

Test(planner_profile, huge_lines_and_files_are_refused) {
  char path[64];
  weir_profile profile;
  FREED char *text = malloc(WEIR_CSV_LINE + sizeof HEADER);
  strcpy(text, HEADER);
  memset(text + sizeof HEADER - 1, 'a', WEIR_CSV_LINE);
  write_plan_file(path, text, WEIR_CSV_LINE + sizeof HEADER - 1);
  cr_assert_eq(weir_profile_load(&profile, path), WEIR_E_PARSE);
  cr_assert(strstr(weir_last_error(), ":2: a line of over"), "%s", weir_last_error());
  FILE *file = fopen(path, "w");
  fputs(HEADER, file);
  for (size_t i = 0; i <= WEIR_CSV_ROWS; i++) fprintf(file, "t%zu,1,1\n", i);
  fclose(file);
  cr_assert_eq(weir_profile_load(&profile, path), WEIR_E_PARSE);
  cr_assert(strstr(weir_last_error(), ":1000002: too many rows"), "%s", weir_last_error());
  unlink(path);
}
