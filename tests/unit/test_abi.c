/* Structs of callers whose header is older, or newer, than the library. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>
#include <weir/launch.h>
#include <weir/weir.h>

#include "session/abi.h"

/* A struct of ours in three versions. */
typedef struct first {
  size_t struct_size;
  int32_t a, b;
} first;
typedef struct second {
  size_t struct_size;
  int32_t a, b;
  double c;
} second;
typedef struct third {
  size_t struct_size;
  int32_t a, b;
  double c, d;
} third;
static const weir_abi_struct known = {"second", offsetof(first, b) + sizeof(int32_t),
                                      sizeof(second)};

Test(abi, an_older_struct_gets_defaults_for_what_it_has_not) {
  const first old = {sizeof old, 1, 2};
  second now = {sizeof now, 10, 20, 0.5};
  cr_assert_eq(weir_abi_take(&known, &now, &old), WEIR_OK, "%s", weir_last_error());
  cr_assert(now.struct_size == sizeof now && now.a == 1 && now.b == 2 && now.c == 0.5);
}

Test(abi, an_older_struct_is_not_written_behind_its_end) {
  struct {
    first old;
    double behind;
  } caller = {{sizeof caller.old, 0, 0}, 7};
  const second now = {sizeof now, 1, 2, 3};
  weir_abi_give(&caller.old, &now);
  cr_assert(caller.old.struct_size == sizeof caller.old && caller.old.a == 1 && caller.old.b == 2);
  cr_assert_eq(caller.behind, 7);
}

Test(abi, a_newer_struct_and_none_are_refused_in_words) {
  const third newer = {.struct_size = sizeof newer};
  const second none = {0}, less = {.struct_size = sizeof(size_t)};
  second now = {sizeof now, 1, 2, 3};
  cr_assert_eq(weir_abi_take(&known, &now, &newer), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(),
                   "second.struct_size is 32, and this library (" WEIR_VERSION
                   ") knows 24: it is older than the header that the caller was compiled with");
  cr_assert_eq(weir_abi_take(&known, &now, &none), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "second.struct_size is 0; it must be sizeof(second)");
  cr_assert_eq(weir_abi_take(&known, &now, &less), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(), "second.struct_size is 8; no version is below 16");
  cr_assert(now.a == 1 && now.b == 2 && now.c == 3, "nothing has changed");
}

Test(abi, every_public_struct_is_looked_at) {
  weir_options options;
  weir_session *session = NULL;
  weir_step_info info = {0};
  weir_launch launch = {.rank = 77};
  weir_state_hooks hooks = {0};
  float g[3] = {1, 2, 3};
  weir_options_init(&options);
  cr_assert_eq(options.struct_size, sizeof options);
  options.struct_size = 0;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "weir_options.struct_size is 0"), "%s", weir_last_error());
  options.struct_size = sizeof options + 8;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "older than the header"), "%s", weir_last_error());
  cr_assert_eq(weir_launch_read(&launch), WEIR_E_INVALID);
  cr_assert_eq(launch.rank, 77);
  weir_options_init(&options);
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_hooks(session, &hooks), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "weir_state_hooks.struct_size"), "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(session, "w", 3, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_begin(session, &info), WEIR_E_INVALID);
  info.struct_size = sizeof info;
  cr_assert_eq(weir_step_begin(session, &info), WEIR_OK, "a refused call had no effect");
  cr_assert_eq(info.struct_size, sizeof info);
  cr_assert_eq(weir_submit(session, 0, g), WEIR_OK);
  cr_assert_eq(weir_step_end(session, &info), WEIR_OK);
  cr_assert(g[0] == 1 && g[1] == 2 && g[2] == 3, "the average of one rank");
  cr_assert_eq(info.step, 0);
  weir_session_free(session);
}

/* Defaults into a struct that is longer than this library's: what it does not know is zero. */
Test(abi, a_longer_struct_is_filled_as_far_as_it_is_known) {
  struct {
    weir_options options;
    unsigned char more[8], behind[8];
  } caller;
  memset(&caller, 0xff, sizeof caller);
  weir_options_init_sized(&caller.options, sizeof caller.options + sizeof caller.more);
  cr_assert_eq(caller.options.struct_size, sizeof caller.options + sizeof caller.more);
  cr_assert_eq(caller.options.device, -1);
  for (int i = 0; i < 8; i++) cr_assert(caller.more[i] == 0 && caller.behind[i] == 0xff);
}

Test(abi, the_version_is_the_headers) { cr_assert_str_eq(weir_version(), WEIR_VERSION); }
