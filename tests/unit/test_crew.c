/* The runner's watch over its workers: whose silence counts. */
#include <criterion/criterion.h>

#include "lab/crew.h"

/* Turns take a tick of a tenth of a second, until Ctrl-Z holds the runner up for 200 s. */
Test(crew, a_runner_that_stood_still_takes_it_for_nobodys_silence) {
  weir_crew crew = {.last_word = 50, .turned = 100};
  weir_crew_turn(&crew, 100.1);
  cr_assert_float_eq(crew.last_word, 50, 1e-9);
  weir_crew_turn(&crew, 300.1);
  cr_assert_float_eq(crew.last_word, 250, 1e-9); /* silent for 50.1 s then, as before */
  cr_assert_eq(crew.failed_at, 0);
  weir_crew_turn(&crew, 300.2);
  cr_assert_float_eq(crew.last_word, 250, 1e-9);
}

/* A worker failed a second before: the others keep the time that they may take to end. */
Test(crew, nor_for_time_to_end) {
  weir_crew crew = {.last_word = 99, .turned = 100, .failed_at = 99};
  weir_crew_turn(&crew, 150);
  cr_assert_float_eq(crew.failed_at, 149, 1e-9);
}
