/* Filters of tensors: what an item takes, and what is none. */
#include <criterion/criterion.h>
#include <string.h>

#include "controller/filter.h"

Test(filter, takes_by_name_and_by_size) {
  static const struct {
    const char *filter, *name;
    size_t numel;
    bool taken;
  } cases[] = {{"", "bias", 1, false},
               {NULL, "bias", 1, false},
               {"*bias", "fc1.bias", 9, true},
               {"*BIAS", "fc1.bias", 9, true},
               {"*bias", "fc1.bias.g", 9, false},
               {"*bias*", "fc1.bias.g", 9, true},
               {"bias", "fc1.bias", 9, false},
               {"ln_?.[wb]*", "LN_2.weight", 9, true},
               {"ln_?.[wb]*", "ln_12.weight", 9, false},
               {"<10", "fc1", 9, true},
               {"<10", "fc1", 10, false},
               {"<10", NULL, 9, true},
               {"*", NULL, 9, false},
               {"a,<5,b", "b", 9, true},
               {"a,<5,b", "c", 4, true},
               {"a,<5,b", "c", 5, false},
               {"a,b", "a,b", 9, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cr_assert_eq(weir_filter_check(cases[i].filter), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(weir_filter_takes(cases[i].filter, cases[i].name, cases[i].numel), cases[i].taken,
                 "%zu", i);
  }
}

Test(filter, what_is_none) {
  static const char *const bad[] = {",",   "a,",   ",a",  "a,,b", "<",
                                    "<0",  "<-1",  "<1x", "< 1",  "<99999999999999999999999",
                                    "a,<", "<1.5", "<+1"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    cr_assert_eq(weir_filter_check(bad[i]), WEIR_E_INVALID, "'%s' is taken", bad[i]);
  static char longest[WEIR_FILTER_MAX + 1];
  memset(longest, 'x', WEIR_FILTER_MAX - 1);
  cr_assert_eq(weir_filter_check(longest), WEIR_OK);
  cr_assert_not(weir_filter_takes(longest, "x", 1));
  longest[WEIR_FILTER_MAX - 1] = 'x';
  cr_assert_eq(weir_filter_check(longest), WEIR_E_INVALID);
}

Test(filter, patterns_that_match_nothing_are_told) {
  static const char *const names[] = {"fc1.weight", "fc1.bias", NULL};
  const char *rest = "*bias,*norm*,<5,fc1.*,fc1";
  char pattern[WEIR_FILTER_MAX];
  cr_assert(weir_filter_next_idle(&rest, names, 3, pattern));
  cr_assert_str_eq(pattern, "*norm*");
  cr_assert(weir_filter_next_idle(&rest, names, 3, pattern));
  cr_assert_str_eq(pattern, "fc1");
  cr_assert_not(weir_filter_next_idle(&rest, names, 3, pattern));
  static const char *const idle_nowhere[] = {"", NULL, "*BIAS", "<1"};
  for (size_t i = 0; i < 4; i++) {
    rest = idle_nowhere[i];
    cr_assert_not(weir_filter_next_idle(&rest, names, 3, pattern), "%zu", i);
  }
}
