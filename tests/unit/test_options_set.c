/* Options by name: every key, and every value that is refused. */
#include <criterion/criterion.h>
#include <string.h>
#include <weir/weir.h>

static weir_options fresh(void) {
  weir_options options;
  weir_options_init(&options);
  return options;
}

Test(options_set, every_key_sets_its_field_and_no_other) {
  weir_options by_hand = fresh(), by_name = fresh();
  by_hand.rank = 3;
  by_hand.world_size = 4;
  by_hand.job_id = UINT64_MAX;
  by_hand.timeout_s = 0.5;
  by_hand.trial_budget = 0;
  by_hand.steps = 100;
  by_hand.seed = 7;
  by_hand.momentum_correction = 0.9;
  by_hand.warmup_steps = 9;
  by_hand.journal_bytes = 0;
  by_hand.active_probes = false;
  by_hand.overlap = true;
  by_hand.profile = true;
  by_hand.codec_threads = 2;
  by_hand.memory_limit = 1000;
  by_hand.tcp_streams = 8;
  by_hand.device = -1;
  by_hand.stream = (void *)4096;
  by_hand.listener = 5;
  by_hand.error_feedback = false;
  by_hand.transport = by_hand.rendezvous = by_hand.bind_address = by_hand.secret =
      by_hand.secret_file = by_hand.policy = by_hand.risk = by_hand.journal_path =
          by_hand.nonfinite = by_hand.tls = by_hand.full_precision = by_hand.update_rule =
              by_hand.tls_certificate = by_hand.tls_key = by_hand.tls_authority = "words";
  static const char *const set[][2] = {{"rank", "3"},
                                       {"world_size", "4"},
                                       {"job_id", "18446744073709551615"},
                                       {"timeout_s", "0.5"},
                                       {"trial_budget", "0"},
                                       {"steps", "100"},
                                       {"seed", "7"},
                                       {"momentum_correction", "0.9"},
                                       {"warmup_steps", "9"},
                                       {"journal_bytes", "0"},
                                       {"active_probes", "false"},
                                       {"overlap", "true"},
                                       {"profile", "true"},
                                       {"codec_threads", "2"},
                                       {"memory_limit", "1000"},
                                       {"tcp_streams", "8"},
                                       {"device", "-1"},
                                       {"stream", "4096"},
                                       {"listener", "5"},
                                       {"error_feedback", "false"}};
  static const char words[] = "words";
  static const char *const names[] = {
      "transport",      "rendezvous",  "bind_address",    "secret",    "secret_file",
      "policy",         "risk",        "journal_path",    "nonfinite", "tls",
      "full_precision", "update_rule", "tls_certificate", "tls_key",   "tls_authority"};
  for (size_t i = 0; i < sizeof set / sizeof *set; i++)
    cr_assert_eq(weir_options_set(&by_name, set[i][0], set[i][1]), WEIR_OK, "%s",
                 weir_last_error());
  by_hand.transport = by_hand.rendezvous = by_hand.bind_address = by_hand.secret =
      by_hand.secret_file = by_hand.policy = by_hand.risk = by_hand.journal_path =
          by_hand.nonfinite = by_hand.tls = by_hand.full_precision = by_hand.update_rule =
              by_hand.tls_certificate = by_hand.tls_key = by_hand.tls_authority = words;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    cr_assert_eq(weir_options_set(&by_name, names[i], words), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(memcmp(&by_hand, &by_name, sizeof by_hand), 0);
  cr_assert_eq(weir_options_size(), sizeof by_hand);
}

Test(options_set, what_a_field_does_not_take_is_refused_in_words) {
  static const char *const bad[][3] = {
      {"rank", "", "option \"rank\" takes a whole number, not \"\""},
      {"rank", "1.5", "option \"rank\" takes a whole number, not \"1.5\""},
      {"rank", "3000000000", "option \"rank\" takes a whole number, not \"3000000000\""},
      {"seed", "-1", "option \"seed\" takes a whole number of at least 0, not \"-1\""},
      {"seed", "18446744073709551616",
       "option \"seed\" takes a whole number of at least 0, not \"18446744073709551616\""},
      {"timeout_s", "10s", "option \"timeout_s\" takes a number, not \"10s\""},
      {"overlap", "1", "option \"overlap\" takes \"true\" or \"false\", not \"1\""},
      {"stream", "0x10", "option \"stream\" takes an address in decimal digits, not \"0x10\""},
      {"stream", "-1", "option \"stream\" takes an address in decimal digits, not \"-1\""},
      {"virtual_user", "0", "there is no option \"virtual_user\""},
      {"struct_size", "8", "there is no option \"struct_size\""},
      {"polycy", "weir", "there is no option \"polycy\""}};
  const weir_options before = fresh();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    weir_options options = fresh();
    cr_assert_eq(weir_options_set(&options, bad[i][0], bad[i][1]), WEIR_E_INVALID, "%s=%s",
                 bad[i][0], bad[i][1]);
    cr_assert_str_eq(weir_last_error(), bad[i][2]);
    cr_assert_eq(memcmp(&options, &before, sizeof before), 0, "%s was changed", bad[i][0]);
  }
  weir_options options = fresh();
  cr_assert_eq(weir_options_set(NULL, "rank", "1"), WEIR_E_INVALID);
  cr_assert_eq(weir_options_set(&options, NULL, "1"), WEIR_E_INVALID);
  cr_assert_eq(weir_options_set(&options, "rank", NULL), WEIR_E_INVALID);
}

Test(options_set, a_struct_of_an_older_header_is_not_written_behind_its_end) {
  weir_options options = fresh();
  options.struct_size = offsetof(weir_options, nonfinite);
  cr_assert_eq(weir_options_set(&options, "nonfinite", "keep"), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "beyond the caller's struct"), "%s", weir_last_error());
  cr_assert_str_eq(options.nonfinite, "zero");
  cr_assert_eq(weir_options_set(&options, "device", "0"), WEIR_OK);
  cr_assert_eq(options.device, 0);
}

Test(options_set, ranges_are_left_to_the_session) {
  weir_options options = fresh();
  weir_session *session = NULL;
  cr_assert_eq(weir_options_set(&options, "nonfinite", "nought"), WEIR_OK);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "nonfinite is \"nought\"; \"zero\" and \"keep\" are known");
  cr_assert_eq(weir_options_set(&options, "nonfinite", "keep"), WEIR_OK);
  cr_assert_eq(weir_options_set(&options, "listener", "1000"), WEIR_OK);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "descriptor 1000, the listener, is no socket that listens");
}
