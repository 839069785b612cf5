/* Ranks join a group that trains: what they get, what nobody loses, and who is refused. */
#include "join_course.h"
#include "session_ranks.h"
#include "wire_bytes.h"

#define STEPS 450 /* after which what is left of the loss is noise */

/* --- a run that grows and shrinks ------------------------------------------------------------- */

static double final_loss(course *c) {
  course_begin(c);
  course_end(c);
  return course_loss(c->seat[1].w);
}

/* 2 -> 4 -> 3 (the first rank 0 is lost) -> 8, and 4 all the time. */
Test(join, a_training_grows_and_shrinks) {
  course *still = course_new("fixed:topk:0.1:ag", COURSE_SECRET);
  course *moving = course_new("fixed:topk:0.1:ag", COURSE_SECRET);
  still->steps = moving->steps = STEPS;
  still->want[0] = 4;
  memcpy(moving->want, (int[COURSE_PHASES]){2, 4, 3, 8}, sizeof moving->want);
  moving->seat[2].phase = moving->seat[3].phase = 1;
  moving->victim_phase = 2;
  moving->victim = 0;
  for (int s = 4; s < COURSE_SEATS; s++) moving->seat[s].phase = 3;
  const double without = final_loss(still), with = final_loss(moving);
  printf("loss %.5f with changes, %.5f without, %.3f at first\n", with, without,
         course_loss((float[COURSE_N]){0}));
  cr_expect_lt(with, 1.05 * without);
  cr_expect_eq(atomic_load(&moving->grown), 7);
  course_done(still);
  course_done(moving);
}

/* The same where the ranks of a machine share memory, which is made anew with every group. */
Test(join, a_training_on_machines_grows_and_shrinks) {
  static const char *const transports[] = {"auto", "mixed"};
  for (int i = 0; i < 2; i++) {
    course *c = course_new("fixed:topk:0.1:ag", i == 0 ? COURSE_SECRET : NULL);
    c->transport = transports[i];
    memcpy(c->want, (int[COURSE_PHASES]){2, 4, 3, 8}, sizeof c->want);
    c->seat[2].phase = c->seat[3].phase = 1;
    c->victim_phase = 2;
    c->victim = i;
    for (int s = 4; s < COURSE_SEATS; s++) c->seat[s].phase = 3;
    course_begin(c);
    course_end(c);
    cr_expect_eq(atomic_load(&c->grown), 7);
    course_done(c);
  }
}

/* --- who comes in, with what ------------------------------------------------------------------ */

static course *two_and_one(const char *policy, const char *secret) {
  course *c = course_new(policy, secret);
  memcpy(c->want, (int[COURSE_PHASES]){2, 3}, sizeof c->want);
  c->seat[2].phase = 1;
  c->grown_due = 1;
  return c;
}

static void play(course *c) {
  course_begin(c);
  course_end(c);
  cr_expect_eq(atomic_load(&c->grown), c->grown_due);
  course_done(c);
}

Test(join, under_every_scheme) {
  static const char *const policies[] = {
      "fixed:none:1:dense-ring",     "fixed:qsgd:0.125:ag",        "fixed:star:0.1:art-tree",
      "fixed:powersgd:2:dense-ring", "fixed:randomk:0.1:art-ring", "fixed:fp16:0.5:compressed-ring",
      "fixed:bilateral:2:dense-sra", "groups:even=2:topk:0.1:ag",  "fixed:whitened:0.125:sra",
      "fixed:dithered:0.125:ag"};
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
    play(two_and_one(policies[p], p % 2 ? COURSE_SECRET : NULL));
}

/* More than goes in a piece. */
Test(join, with_a_large_state) {
  course *c = two_and_one("fixed:none:1:dense-ring", COURSE_SECRET);
  c->large = ((size_t)9 << 20) + 5;
  play(c);
}

Test(join, with_momentum_correction) {
  course *c = two_and_one("fixed:topk:0.1:ag", NULL);
  c->momentum = 0.5;
  play(c);
}

/* Trials under way are given up, and the network is measured with the new rank. */
Test(join, under_policies_that_try) {
  course *c = two_and_one("paper", NULL);
  c->probes = true;
  play(c);
  c = two_and_one("weir", COURSE_SECRET);
  c->plain = true;
  play(c);
}

/* Like the members it begins under the first plan, and follows the schedule from the step at
 * hand. */
Test(join, after_a_change_of_plan) {
  course *c = two_and_one("schedule:none:1:dense-ring;step=3:powersgd:2:dense-ring", NULL);
  c->seat[2].phase = 2;
  c->want[1] = 2;
  c->want[2] = 3;
  play(c);
}

/* Not a step has counted: whoever joins has none less, and still not the state. */
Test(join, before_the_first_step_that_counts) {
  course *c = course_new("fixed:topk:0.1:ag", NULL);
  c->lost_first = true;
  c->want[0] = 2;
  c->seat[2].phase = c->grown_due = 1;
  play(c);
}

/* A group of one grows, by no more than it has. */
Test(join, one_by_one_and_two) {
  course *c = course_new("fixed:topk:0.1:ag", NULL);
  memcpy(c->want, (int[COURSE_PHASES]){1, 4}, sizeof c->want);
  for (int s = 1; s < 4; s++) c->seat[s].phase = 1;
  c->hold = c->grown_due = 3;
  play(c);
}

/* --- spares ----------------------------------------------------------------------------------- */

/* There is no place until rank 0 is lost. */
Test(join, a_spare_waits_for_a_place) {
  course *c = course_new("fixed:topk:0.1:ag", COURSE_SECRET);
  c->most = 2;
  memcpy(c->want, (int[COURSE_PHASES]){2, 2, 2}, sizeof c->want);
  c->seat[2].phase = c->watch_phase = 1;
  c->victim = 0;
  c->victim_phase = 2;
  c->grown_due = 1;
  play(c);
}

Test(join, a_spare_waits_in_vain) {
  course *c = course_new("fixed:topk:0.1:ag", NULL);
  c->most = c->want[0] = 2;
  c->seat[2].phase = 1;
  c->seat[2].odd = IMPATIENT;
  c->odd_due = 1;
  course_begin(c);
  course_end(c);
  cr_expect_eq(c->seat[2].status, WEIR_E_TIMEOUT);
  cr_expect(strstr(c->seat[2].message, "the group of 2 ranks did not take this rank in within 1 s"),
            "%s", c->seat[2].message);
  cr_expect_lt(c->seat[2].took_s, 4.0);
  course_done(c);
}

/* --- who is refused --------------------------------------------------------------------------- */

static void refused(course_odd odd, const char *secret, const char *why) {
  course *c = course_new("fixed:topk:0.1:ag", secret);
  c->want[0] = 2;
  c->seat[2].phase = 1;
  c->seat[2].odd = odd;
  c->odd_due = 1;
  course_begin(c);
  course_end(c);
  cr_expect_eq(c->seat[2].status, WEIR_E_MISMATCH, "%d: %s", (int)odd,
               weir_status_name(c->seat[2].status));
  cr_expect(strstr(c->seat[2].message, why), "%s: %s", why, c->seat[2].message);
  cr_expect_lt(c->seat[2].took_s, 4.0);
  course_done(c);
}

Test(join, strangers_are_refused_and_the_group_goes_on) {
  refused(OTHER_SECRET, COURSE_SECRET, "does not know this job's secret");
  refused(OTHER_JOB, NULL, "belongs to another job");
  refused(OTHER_TENSORS, NULL, "other tensors or state");
  refused(OTHER_STATE, COURSE_SECRET, "other tensors or state");
  refused(OTHER_POLICY, NULL, "or has other options");
  refused(OTHER_TLS, COURSE_SECRET, "encrypts its messages and the other does not");
}

/* A session that others may join, alone at `where`. */
static weir_session *alone_under(const char *where, const char *policy) {
  weir_session *session = NULL;
  weir_options options;
  weir_options_init(&options);
  options.rendezvous = where;
  options.max_ranks = 2;
  options.policy = policy;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  return session;
}

static weir_session *alone(const char *where) { return alone_under(where, "weir"); }

/* Who joins needs no table of the policy, which rank 0 has; one that is damaged, an empty one here,
 * it keeps to itself. */
Test(join, without_the_policys_table) {
  char where[64];
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  weir_session *session = alone_under(where, "groups:/nowhere/table.csv");
  cr_expect_eq(weir_join(session, 0.3, NULL), WEIR_E_TIMEOUT, "%s", weir_last_error());
  weir_session_free(session);
  session = alone_under(where, "groups:/dev/null");
  cr_expect_eq(weir_join(session, 0.3, NULL), WEIR_E_PARSE, "%s", weir_last_error());
  weir_session_free(session);
}

/* Answers the first who calls in words of another version. */
static void *speak_otherwise(void *argument) {
  unsigned char hello[HELLO];
  const int fd = accept(*(int *)argument, NULL, NULL);
  (void)receive(fd, hello, sizeof hello);
  write_hello(hello, (greeting){.version = WIRE_VERSION + 1, .kind = REFUSED, .detail = VERSION});
  send_all(fd, hello, sizeof hello);
  (void)close(fd);
  return NULL;
}

Test(join, other_versions_are_refused) {
  unsigned char hello[HELLO];
  char where[64];
  pthread_t thread;
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  weir_session *session = alone(where);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  const int fd = dial(where);
  write_hello(hello, (greeting){.version = WIRE_VERSION + 1, .kind = JOIN});
  send_all(fd, hello, sizeof hello);
  cr_assert_eq(receive(fd, hello, sizeof hello), sizeof hello);
  cr_expect(get(hello + 6, 2) == REFUSED && get(hello + 28, 4) == VERSION);
  (void)close(fd);
  weir_session_free(session);

  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int port = free_port();
  const struct sockaddr_in at = loopback(port);
  cr_assert(bind(listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
            listen(listener, 1) == 0);
  cr_assert_eq(pthread_create(&thread, NULL, speak_otherwise, &listener), 0);
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", port);
  session = alone(where);
  const double begin_s = weir_now_s();
  cr_expect_eq(weir_join(session, 20, NULL), WEIR_E_MISMATCH);
  cr_expect(strstr(weir_last_error(), "is of another version"), "%s", weir_last_error());
  cr_expect_lt(weir_now_s() - begin_s, 4.0);
  (void)pthread_join(thread, NULL);
  (void)close(listener);
  weir_session_free(session);
}

/* --- who is lost meanwhile -------------------------------------------------------------------- */

Test(join, a_member_dies_when_it_should_grow) {
  for (int victim = 0; victim < 3; victim++) {
    course *c = course_new("fixed:topk:0.1:ag", victim == 1 ? COURSE_SECRET : NULL);
    c->want[0] = 3;
    c->seat[3].phase = 1;
    c->killed_at_grow = victim;
    c->grown_due = c->empty_due = 1;
    play(c);
  }
}

/* Three of four go on, one of whom has just come in: two alone could not know that the other two
 * do not. */
Test(join, a_member_falls_silent_once_all_have_met) {
  for (int victim = 0; victim < 3; victim++) {
    course *c = course_new("fixed:topk:0.1:ag", victim == 1 ? COURSE_SECRET : NULL);
    c->timeout_s = 1.5;
    c->want[0] = 3;
    c->seat[3].phase = 1;
    c->silent_in_grow = victim;
    c->failed_due = 1;
    play(c);
  }
}

/* It waits at the door, and does not answer the call. */
Test(join, one_who_waits_falls_silent) {
  course *c = course_new("fixed:topk:0.1:ag", NULL);
  c->want[0] = 2;
  c->seat[2].phase = 1;
  c->seat[2].odd = IS_STOPPED;
  c->empty_due = 1;
  play(c);
}

/* The other one comes in all the same, and the first once it has come again. */
Test(join, the_first_of_those_who_wait_is_lost) {
  course *c = course_new("fixed:topk:0.1:ag", COURSE_SECRET);
  c->want[0] = 2;
  c->seat[2].phase = c->seat[3].phase = 1;
  c->hold = c->grown_due = 2;
  c->cut_at_grow = true;
  course_begin(c);
  course_end(c);
  cr_expect_eq(atomic_load(&c->grown), 2);
  cr_expect_eq(atomic_load(&c->failed), 0, "the group was lost with it");
  course_done(c);
}

/* Decided on, it is a rank like any other, and can be lost. */
Test(join, one_who_has_come_in_is_lost_at_once) {
  for (int silent = 0; silent < 2; silent++)
    for (int tls = silent; tls < 2; tls++) {
      course *c = course_new("fixed:topk:0.1:ag", tls ? COURSE_SECRET : NULL);
      c->timeout_s = 1.5;
      c->want[0] = 2;
      c->seat[2].phase = c->seat[3].phase = 1; /* as many as the members */
      c->seat[2].odd = c->seat[3].odd = silent ? STOPS : DIES;
      c->failed_due = 1;
      play(c);
    }
}

/* --- what cannot be --------------------------------------------------------------------------- */

static weir_session *session_of(const char *transport, int most, weir_status right) {
  weir_session *session = NULL;
  weir_options options;
  weir_options_init(&options);
  options.transport = transport;
  options.max_ranks = most;
  options.policy = "fixed:none:1:dense-ring";
  cr_expect_eq(weir_session_create(&session, &options), right, "%s", weir_last_error());
  return session;
}

Test(join, is_refused_where_it_cannot_be) {
  static const char *const others[] = {"shm",  "inproc",   "mpi",      "shm+mpi",
                                       "nccl", "nccl+tcp", "nccl+mpi", "shm+nccl"};
  char text[64];
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    cr_expect_null(session_of(others[i], 4, WEIR_E_UNSUPPORTED));
    cr_expect(strstr(weir_last_error(), "takes in no ranks once it has started"), "%s",
              weir_last_error());
  }
  cr_expect_null(session_of("tcp", -1, WEIR_E_INVALID));
  cr_expect_eq(weir_join(NULL, 1, NULL), WEIR_E_INVALID);
  cr_expect_eq(weir_grow(NULL, NULL), WEIR_E_INVALID);
  weir_session *session = session_of("tcp", 0, WEIR_OK);
  cr_expect_eq(weir_join(session, 1, NULL), WEIR_E_INVALID);
  cr_expect(strstr(weir_last_error(), "max_ranks is 0"));
  cr_expect_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_expect_eq(weir_join(session, 1, NULL), WEIR_E_STATE);
  cr_expect_eq(weir_grow(session, NULL), WEIR_E_STATE);
  cr_expect(strstr(weir_last_error(), "nobody waits to join"));
  cr_expect_eq(weir_addresses(session, text, sizeof text), WEIR_E_UNSUPPORTED);
  weir_session_free(session);
}

Test(join, finds_nobody) {
  weir_session *session = session_of("tcp", 4, WEIR_OK);
  char where[64], text[128];
  cr_expect_eq(weir_join(session, 0.2, NULL), WEIR_E_INVALID);
  cr_expect(strstr(weir_last_error(), "WEIR_JOIN"), "%s", weir_last_error());
  weir_session_free(session);
  session = session_of("tcp", 4, WEIR_OK);
  cr_expect_eq(weir_join(session, 0, NULL), WEIR_E_INVALID);
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  (void)setenv("WEIR_JOIN", where, 1);
  cr_expect_eq(weir_join(session, 0.3, NULL), WEIR_E_TIMEOUT);
  (void)snprintf(text, sizeof text, "no member of the group was found at %s within 0.3 s", where);
  cr_expect_str_eq(weir_last_error(), text);
  weir_session_free(session);
  session = session_of("tcp", 4, WEIR_OK);
  (void)setenv("WEIR_JOIN", "10.9.8.7:6", 1);
  cr_expect_eq(weir_join(session, 0.3, NULL), WEIR_E_INVALID);
  cr_expect(strstr(weir_last_error(), "needs a secret"), "%s", weir_last_error());
  weir_session_free(session);
}

typedef struct everywhere {
  weir_options options;
  char text[64];
  weir_status status;
} everywhere;

static void *listen_everywhere(void *argument) {
  everywhere *e = argument;
  weir_session *session = NULL;
  e->status = weir_session_create(&session, &e->options);
  if (e->status == WEIR_OK) e->status = weir_session_start(session);
  if (e->status == WEIR_OK) e->status = weir_addresses(session, e->text, sizeof e->text);
  if (e->status != WEIR_OK) (void)strncpy(e->text, weir_last_error(), sizeof e->text - 1);
  weir_session_free(session);
  return NULL;
}

/* `ranks` of a group whose rank 0 listens at all addresses of its machine. */
static void open_everywhere(everywhere *e, int ranks, const char *rendezvous) {
  for (int r = 0; r < ranks; r++) {
    e[r] = (everywhere){0};
    weir_options_init(&e[r].options);
    e[r].options.rank = r;
    e[r].options.world_size = ranks;
    e[r].options.transport = "tcp";
    e[r].options.rendezvous = rendezvous;
    e[r].options.bind_address = "0.0.0.0";
    e[r].options.secret = COURSE_SECRET;
    e[r].options.max_ranks = 4;
    e[r].options.timeout_s = 20;
  }
  session_threads(e, sizeof *e, ranks, listen_everywhere);
}

/* What others are told is where they reach it: the address by which those that have come did, else
 * the rendezvous's; and nothing where neither is known. */
Test(join, tells_no_address_that_leads_nowhere) {
  everywhere e[2];
  char where[64];
  const int port = free_port();
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", port);
  open_everywhere(e, 1, where);
  cr_expect_eq(e[0].status, WEIR_OK);
  cr_expect_str_eq(e[0].text, where);
  (void)snprintf(where, sizeof where, "0.0.0.0:%d", free_port());
  open_everywhere(e, 1, where);
  cr_expect_eq(e[0].status, WEIR_E_UNSUPPORTED);
  cr_expect(strstr(e[0].text, "rank 0 listens at all"), "%s", e[0].text);
  (void)snprintf(where, sizeof where, "0.0.0.0:%d", free_port());
  open_everywhere(e, 2, where);
  for (int r = 0; r < 2; r++) {
    cr_expect_eq(e[r].status, WEIR_OK, "%s", e[r].text);
    cr_expect(strstr(e[r].text, "127.0.0.1:") == e[r].text, "%s", e[r].text);
    cr_expect(strstr(e[r].text, ",127.0.0.1:"), "%s", e[r].text);
  }
}

Test(join, tells_where_the_members_are) {
  char where[64], text[64], few[8];
  (void)snprintf(where, sizeof where, "127.0.0.1:%d", free_port());
  weir_session *session = alone(where);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_expect_eq(weir_addresses(session, text, sizeof text), WEIR_OK);
  cr_expect_str_eq(text, where);
  cr_expect_eq(weir_addresses(session, few, sizeof few), WEIR_E_CAPACITY);
  weir_session_free(session);
}
