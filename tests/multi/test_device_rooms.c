/* Messages that stay on devices (engine/device_rooms.c), gathered ones, those of sums and AR-Topk's
 * lists: steps over rooms have the bits of steps over the host, whatever plans follow one another,
 * and who cannot read a room keeps all ranks out of theirs. */
#include "../sampled.h"
#include "device_course.h"
#include "engine/memory.h"

static bool gathers(const char *text) { return strstr(text, ":ag") != NULL; }

/* The same course with rooms and without; of exact codecs also in host memory. */
static void compare_rooms(course *c, int ranks, bool stay, bool exact) {
  course host = *c;
  const unsigned all = (1U << ranks) - 1;
  c->rooms = true;
  host.rooms = false;
  make_room(c);
  make_room(&host);
  run_course(c, ranks, all);
  run_course(&host, ranks, exact ? 0 : all);
  for (int r = 0; r < ranks; r++) {
    cr_assert_eq(c->stayed[r], stay, "rank %d of %d", r, ranks);
    cr_assert(!host.stayed[r]);
  }
  for (int s = 0; s < c->count; s++)
    for (int r = 0; r < ranks; r++) {
      const size_t at = (size_t)s * c->n;
      cr_assert_eq(c->status[r][s], host.status[r][s]);
      same(c->update[r] + at, host.update[r] + at, c->n, "average", r, s);
      same(c->after[r] + at, host.after[r] + at, c->n, "residual", r, s);
    }
  free_room(&host);
  free_room(c);
}

Test(device_rooms, every_gathered_arm_has_the_bits_of_the_host) {
  static const int sizes[] = {2, 3, 4, 8};
  static course c;
  size_t tried = 0;
  c.device = test_device_open();
  for (size_t arm = 0; arm < sizeof arms / sizeof *arms; arm++) {
    if (!gathers(arms[arm])) continue;
    const weir_plan plan = plan_of(arms[arm], 1);
    for (size_t k = 0; k < (GROUP_SLOW ? 1 : 4); k++) {
      if (!sampled_of_dear(4)) continue;
      lay_out(&c, (arm + k) % 2 == 0 ? 1500 : 5001);
      c.apart = (arm + k) % 2 == 1;
      c.momentum = is_exact(&plan) && arm % 2 == 0 ? 0.9 : 0;
      c.seed = arm + 1;
      c.count = 5;
      for (int s = 0; s < c.count; s++) c.steps[s] = (script_step){.plan = plan, .poisoned = -1};
      compare_rooms(&c, sizes[GROUP_SLOW ? arm % 4 : k], true, is_exact(&plan));
    }
    tried++;
  }
  cr_assert_eq(tried, 24);
}

static const char *const sums[] = {"qsgd:0.125:sra",
                                   "qsgd:0.0625:sra:bucket=64",
                                   "qsgd-l2:0.25:sra",
                                   "qsgd-nearest:0.125:sra",
                                   "fp16:0.5:sra",
                                   "qsgd-l2-nearest:0.25:sra",
                                   "qsgd:0.125:compressed-ring",
                                   "fp16:0.5:compressed-ring",
                                   "qsgd-l2:0.25:compressed-ring:bucket=64",
                                   "qsgd:0.125:compressed-tree",
                                   "fp16:0.5:compressed-tree",
                                   "qsgd-nearest:0.0625:compressed-tree:bucket=1024",
                                   "minifloat:0.25:sra",
                                   "minifloat:0.1875:compressed-ring",
                                   "minifloat:0.15625:compressed-tree",
                                   "companded:0.125:sra",
                                   "companded:0.09375:compressed-ring",
                                   "companded:0.25:compressed-tree"};
#define SUMS (sizeof sums / sizeof *sums)

/* A plan's steps by 2, 3, 4 or 8 ranks; p: its number, which the rest follows from. */
static void compare_steps(course *c, size_t p, size_t which, size_t n, const char *plan,
                          const int *poisoned, int steps) {
  static const int sizes[] = {2, 3, 4, 8};
  lay_out(c, n);
  c->seed = p + 1;
  c->count = steps;
  for (int s = 0; s < steps; s++)
    c->steps[s] = (script_step){.plan = plan_of(plan, 1), .poisoned = poisoned[s]};
  compare_rooms(c, sizes[which], true, true);
}

/* Shares of a few elements, or of none, and of several messages. */
Test(device_rooms, sums_of_messages_have_the_bits_of_the_host) {
  static const size_t lengths[] = {1500, 5, 70001, 13};
  static const int poisoned[] = {-1, -1, 1, -1};
  static course c;
  c.device = test_device_open();
  for (size_t p = 0; p < SUMS; p++)
    for (size_t k = 0; k < (GROUP_SLOW ? 1 : 4); k++) {
      if (!sampled_of_dear(4)) continue;
      const size_t which = GROUP_SLOW ? p % 4 : k;
      c.apart = (p + k) % 2 == 1;
      c.momentum = p % 2 == 0 ? 0.9 : 0;
      compare_steps(&c, p, which, lengths[(p + which) % 4], sums[p], poisoned, 4);
    }
}

static const char *const lists[] = {"star:0.1:art-ring", "star:0.05:art-tree:auto-bf16",
                                    "var:0.1:art-ring", "var:0.2:art-tree:auto-fp32"};
#define LISTS (sizeof lists / sizeof *lists)

/* Of every rank in its turn, and of one whose gradient holds NaN. */
Test(device_rooms, lists_of_indices_have_the_bits_of_the_host) {
  static const int poisoned[] = {-1, 1, -1, 0, -1};
  static course c;
  c.device = test_device_open();
  for (size_t p = 0; p < LISTS; p++)
    for (size_t k = 0; k < (GROUP_SLOW ? 1 : 4); k++) {
      if (!sampled_of_dear(4)) continue;
      c.apart = (p + k) % 2 == 1;
      c.momentum = k % 2 == 0 ? 0.9 : 0;
      compare_steps(&c, p, GROUP_SLOW ? p % 4 : k, p % 2 == 0 ? 1500 : 5001, lists[p], poisoned, 5);
    }
}

/* Machines of two, three and four ranks, which follow one another or take turns. */
static const char *const machines[] = {"aabb", "abab", "ababab", "aaaabbbb", "aabbccdd"};
#define MACHINES (sizeof machines / sizeof *machines)

/* And where there is one rank, or another, whose gradient holds NaN. */
Test(device_rooms, inside_of_machines_gathered_arms_have_the_bits_of_the_host) {
  static course c;
  c.device = test_device_open();
  c.inside = true;
  for (size_t arm = 0; arm < sizeof arms / sizeof *arms; arm++) {
    if (!gathers(arms[arm])) continue;
    const weir_plan plan = plan_of(arms[arm], 1);
    c.machines = machines[arm % MACHINES];
    const int ranks = (int)strlen(c.machines);
    lay_out(&c, arm % 2 == 0 ? 1500 : 5001);
    c.apart = arm % 3 == 1;
    c.momentum = is_exact(&plan) && arm % 2 == 0 ? 0.9 : 0;
    c.seed = arm + 1;
    c.count = 5;
    for (int s = 0; s < c.count; s++)
      c.steps[s] = (script_step){.plan = plan, .poisoned = s == 2 ? ranks - 1 : s == 3 ? 0 : -1};
    compare_rooms(&c, ranks, true, is_exact(&plan));
  }
}

/* --- courses ---------------------------------------------------------------------------------- */

static weir_plan draw_arm(weir_rng *rng) {
  if (weir_rng_below(rng, 4) == 0) return plan_of(sums[weir_rng_below(rng, SUMS)], 0);
  for (;;) {
    const char *text = arms[weir_rng_below(rng, sizeof arms / sizeof *arms)];
    const weir_plan plan = plan_of(text, 0);
    if (is_exact(&plan) && (gathers(text) || weir_rng_below(rng, 3) == 0)) return plan;
  }
}

/* Rooms grow with the first plans that need more, and messages of one step lie where others'
 * lay. */
static void draw_step(script_step *s, weir_rng *rng, uint64_t id, int ranks) {
  size_t count = 0;
  for (uint32_t t = 1; t <= TENSORS; t++) {
    if (t < TENSORS && weir_rng_below(rng, 2) != 0) continue;
    const weir_plan plan = draw_arm(rng);
    script_add_bucket(s, &count, t, (uint32_t)weir_rng_below(rng, 2), &plan);
  }
  script_close(s, count, id);
  s->poisoned = -1;
  if (weir_rng_below(rng, 6) == 0) /* a rank's gradient holds NaN, or all ranks' do */
    s->poisoned =
        weir_rng_below(rng, 3) == 0 ? GROUP_MAX : (int)weir_rng_below(rng, (uint64_t)ranks);
}

/* where: machines, a letter a rank; NULL: so many ranks on one. */
static void run_random(const char *where, int ranks, uint64_t seed) {
  static course c;
  c.device = test_device_open();
  c.machines = where;
  c.inside = where != NULL;
  weir_rng rng = weir_rng_of(seed + 100);
  bool trial = false;
  lay_out(&c, seed % 2 == 0 ? 700 : 4000);
  memset(c.steps, 0, sizeof c.steps);
  c.momentum = seed % 2 == 0 ? 0 : 0.75;
  c.apart = seed == 3;
  c.seed = seed;
  c.count = STEPS_MAX;
  for (int s = 0; s < c.count; s++) {
    draw_step(&c.steps[s], &rng, (uint64_t)s, ranks);
    trial = s > 0 && weir_rng_below(&rng, trial ? 2 : 5) == 0;
    c.steps[s].action = trial ? WEIR_ACTION_TRIAL : WEIR_ACTION_SWITCH;
  }
  compare_rooms(&c, ranks, true, true);
}

Test(device_rooms, changing_plans_trials_and_poisoned_gradients_have_the_bits_of_the_host) {
  static const int sizes[] = {2, 3, 4, 8};
  for (uint64_t seed = 1; seed <= (GROUP_SLOW ? 1 : 4); seed++)
    run_random(NULL, sizes[(seed + 1) % 4], seed);
}

Test(device_rooms, inside_of_machines_changing_plans_have_the_bits_of_the_host) {
  for (uint64_t seed = 1; seed <= (GROUP_SLOW ? 1 : 4); seed++)
    run_random(machines[seed % MACHINES], (int)strlen(machines[seed % MACHINES]), seed + 10);
}

static const weir_device_ops *true_ops;

/* Of a rank whose reading lags behind. */
static void lag(void) { (void)nanosleep(&(struct timespec){0, 15000000}, NULL); }

static weir_status late_decode(weir_device *device, size_t bucket, const void *message,
                               size_t bytes, bool first) {
  lag();
  return true_ops->decode(device, bucket, message, bytes, first);
}

static weir_status late_read(weir_device *device, size_t bucket, const void *list, size_t bytes) {
  lag();
  return true_ops->read(device, bucket, list, bytes);
}

static weir_status late_add(weir_device *device, size_t bucket, const weir_device_part *part,
                            const void *from, bool add) {
  lag();
  return true_ops->add(device, bucket, part, from, add);
}

/* The other ranks are a step ahead of it by then, whose messages are in the other half. */
Test(device_rooms, no_message_is_written_over_before_all_have_read_it) {
  static const char *const plans[] = {"topk:0.1:ag",
                                      "qsgd:0.125:ag",
                                      "qsgd:0.125:sra",
                                      "fp16:0.5:sra",
                                      "var:0.1:art-ring",
                                      "qsgd:0.125:compressed-ring",
                                      "qsgd:0.125:compressed-tree"};
  static course c;
  c.device = test_device_open();
  true_ops = c.device.ops;
  weir_device_ops ops = *true_ops;
  ops.decode = late_decode;
  ops.add = late_add;
  ops.read = late_read;
  c.loose = true;
  c.other[1] = &ops;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
    lay_out(&c, 3000);
    memset(c.steps, 0, sizeof c.steps);
    c.seed = p + 1;
    c.count = 8;
    for (int s = 0; s < c.count; s++) /* a dropped step, and one of a trial */
      c.steps[s] = (script_step){.plan = plan_of(plans[p], (uint64_t)(s == 5)),
                                 .poisoned = s == 3 ? 0 : -1,
                                 .action = s == 5   ? WEIR_ACTION_TRIAL
                                           : s == 6 ? WEIR_ACTION_SWITCH
                                                    : WEIR_ACTION_KEEP};
    compare_rooms(&c, c.inside ? 4 : 3, true, true);
  }
}

/* Nothing but what messages over the host take is waited for, and no step but a plan's first makes
 * room. */
Test(device_rooms, steps_wait_as_often_and_allocate_nothing) {
  static const char *const plans[] = {"topk:0.1:ag",
                                      "qsgd:0.125:ag",
                                      "qsgd:0.125:sra",
                                      "fp16:0.5:sra",
                                      "star:0.1:art-ring",
                                      "qsgd:0.25:compressed-ring",
                                      "qsgd:0.125:compressed-tree",
                                      "topk:0.1:ag"};
  static const uint64_t waits[] = {2, 2, 4, 5, 3, 4, 3, 3}; /* test_device.c says why */
  const size_t count = sizeof plans / sizeof *plans;
  static course c;
  c.device = test_device_open();
  c.blind = c.rooms = true;
  for (size_t p = 0; p < count; p++) {
    c.inside = p == 7; /* a wait for what another machine's rank has sent */
    c.machines = c.inside ? "aabb" : NULL;
    lay_out(&c, 3000);
    memset(c.steps, 0, sizeof c.steps);
    c.count = 6;
    for (int s = 0; s < c.count; s++)
      c.steps[s] = (script_step){.plan = plan_of(plans[p], 1), .poisoned = -1};
    make_room(&c);
    run_course(&c, c.inside ? 4 : 2, c.inside ? 15 : 3);
    for (int s = 2; s < c.count; s++) {
      cr_assert_eq(c.allocated[s], c.allocated[1], "%s allocates in step %d", plans[p], s);
      for (int r = 0; r < 2; r++)
        cr_assert_eq(c.waits[r][s] - c.waits[r][s - 1], waits[p], "%s", plans[p]);
    }
    free_room(&c);
  }
}

/* Between machines codes travel by how often they occur, as over the host, and no bit of an average
 * changes. */
Test(device_rooms, inside_of_machines_huffman_shortens_what_leaves_them) {
  static const char *const plans[] = {"companded:0.09375:ag", "companded:0.09375:ag:huffman"};
  static course c;
  uint64_t sent[2];
  c.device = test_device_open();
  c.inside = true;
  c.machines = "aabb";
  c.seed = 1;
  c.count = 3;
  for (size_t p = 0; p < 2; p++) {
    lay_out(&c, 70001);
    for (int s = 0; s < c.count; s++)
      c.steps[s] = (script_step){.plan = plan_of(plans[p], 1), .poisoned = s == 1 ? 2 : -1};
    compare_rooms(&c, 4, true, true);
    sent[p] = c.sent[0];
  }
  cr_assert_lt((double)sent[1], 0.95 * (double)sent[0], "%llu of %llu bytes",
               (unsigned long long)sent[1], (unsigned long long)sent[0]);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* What devices hold in every step of a course with rooms beyond the same course without. */
static void held_by_rooms(course *c, int ranks, uint64_t *bytes) {
  course host = *c;
  c->rooms = c->blind = host.blind = true;
  host.rooms = false;
  make_room(c);
  make_room(&host);
  run_course(c, ranks, (1U << ranks) - 1);
  run_course(&host, ranks, (1U << ranks) - 1);
  for (int s = 0; s < c->count; s++) bytes[s] = c->held[s] - host.held[s];
  free_room(&host);
  free_room(c);
}

/* A driver does not say what is held. */
static bool tells(const test_device *d) {
  void *some = d->memory(1);
  const bool yes = d->held() > 0;
  d->forget(some);
  return yes;
}

static double told_of_room(const char *text, int ranks, int hosts, size_t n) {
  const weir_plan plan = plan_of(text, 0);
  const weir_memory_form form = {.ranks = ranks, .hosts = hosts, .rooms_inside = hosts < ranks};
  return weir_plan_room(&plan, &form, n, weir_cost_kept(&plan, n));
}

/* A message of half of the elements is 16 bytes and 8 for each of these 150000, has room to the
 * next multiple of 16 and 32 more, and begins at a multiple of 256: with two steps' and 256 bytes
 * at either end that is two pages of 2 MiB, and of a hundredth one.  What there is stays. */
Test(device_rooms, rooms_take_what_memory_counts) {
  static const char *const plans[] = {"topk:0.01:ag", "topk:0.5:ag", "none:1:dense-ring",
                                      "topk:0.01:ag"};
  static const uint64_t pages[] = {1, 2, 2, 2};
  static course c;
  uint64_t bytes[STEPS_MAX];
  c.device = test_device_open();
  if (!tells(&c.device)) return;
  lay_out(&c, 300000);
  c.count = 4;
  for (int s = 0; s < c.count; s++)
    c.steps[s] = (script_step){
        .plan = plan_of(plans[s], 1 + (uint64_t)s), .poisoned = -1, .action = WEIR_ACTION_SWITCH};
  held_by_rooms(&c, 2, bytes);
  for (int s = 0; s < c.count; s++) cr_assert_eq(bytes[s], 2 * pages[s] << 21, "step %d", s);
  cr_assert_eq(told_of_room("topk:0.5:ag", 2, 2, c.n), 4194304.0);
  cr_assert_eq(told_of_room("topk:0.01:ag", 2, 2, c.n), 2097152.0);
  cr_assert_eq(told_of_room("none:1:dense-ring", 2, 2, c.n), 0.0);
}

Test(device_rooms, every_kind_of_message_is_counted) {
  static const char *const plans[] = {
      "topk:0.5:ag:auto-bf16", "qsgd:0.125:ag",      "fp16:0.5:ag",       "qsgd:0.125:sra",
      "fp16:0.5:sra",          "bf16:1:dense-ring",  "minifloat:0.25:ag", "minifloat:0.25:sra",
      "companded:0.125:ag",    "companded:0.125:sra"};
  static course c;
  uint64_t bytes[STEPS_MAX];
  c.device = test_device_open();
  if (!tells(&c.device)) return;
  lay_out(&c, 300000);
  c.count = 1;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
    const int ranks = 2 + (int)p % 2;
    c.steps[0] = (script_step){.plan = plan_of(plans[p], 1), .poisoned = -1};
    held_by_rooms(&c, ranks, bytes);
    cr_assert_eq((double)bytes[0], ranks * told_of_room(plans[p], ranks, ranks, c.n),
                 "%s: %llu bytes", plans[p], (unsigned long long)bytes[0]);
  }
}

/* Inside of three machines a rank's room has three messages of two steps: of a tenth of the
 * elements, 240016 bytes that take 240128, that is a page of 2 MiB, and of a fifth, 480128, two. */
Test(device_rooms, inside_of_machines_rooms_have_a_message_of_each) {
  static const char *const plans[] = {"topk:0.1:ag", "topk:0.2:ag", "qsgd:0.125:sra"};
  static const uint64_t pages[] = {1, 2, 2};
  static course c;
  uint64_t bytes[STEPS_MAX];
  c.device = test_device_open();
  if (!tells(&c.device)) return;
  c.inside = true;
  c.machines = "abcabc";
  lay_out(&c, 300000);
  c.count = 3;
  for (int s = 0; s < c.count; s++)
    c.steps[s] = (script_step){
        .plan = plan_of(plans[s], 1 + (uint64_t)s), .poisoned = -1, .action = WEIR_ACTION_SWITCH};
  held_by_rooms(&c, 6, bytes);
  for (int s = 0; s < c.count; s++) cr_assert_eq(bytes[s], 6 * pages[s] << 21, "step %d", s);
  cr_assert_eq(told_of_room("topk:0.1:ag", 6, 3, c.n), 2097152.0);
  cr_assert_eq(told_of_room("topk:0.2:ag", 6, 3, c.n), 4194304.0);
  cr_assert_eq(told_of_room("qsgd:0.125:sra", 6, 3, c.n), 0.0);
}

/* --- what goes wrong -------------------------------------------------------------------------- */

/* Of rank 1, whose table has one of these. */
static weir_status no_room(weir_device *device, size_t bytes, void **room, weir_device_room *told) {
  (void)device;
  *room = NULL;
  memset(told, 0, sizeof *told);
  return weir_fail(WEIR_E_NOMEM, "no room for %zu bytes", bytes);
}

static weir_status no_opening(weir_device *device, const weir_device_room *told, int reader,
                              void **room) {
  (void)device;
  (void)told;
  *room = NULL;
  return weir_fail(WEIR_E_UNSUPPORTED, "rank %d opens nothing", reader);
}

/* What it tells of its room is not so. */
static weir_status lie(weir_device *device, size_t bytes, void **room, weir_device_room *told) {
  const weir_status status = true_ops->make_room(device, bytes, room, told);
  told->bytes += 256;
  return status;
}

static weir_status lie_of_mark(weir_device *device, size_t bytes, void **room,
                               weir_device_room *told) {
  const weir_status status = true_ops->make_room(device, bytes, room, told);
  told->mark ^= 1;
  return status;
}

static weir_status lie_of_process(weir_device *device, size_t bytes, void **room,
                                  weir_device_room *told) {
  const weir_status status = true_ops->make_room(device, bytes, room, told);
  told->process ^= 1;
  return status;
}

/* No rank is in a room then, and all have the bits that they have over the host. */
Test(device_rooms, one_that_cannot_keeps_all_on_the_host) {
  static course c;
  c.device = test_device_open();
  true_ops = c.device.ops;
  for (int trial = 0; trial < 10; trial++) {
    const int way = trial / 2;
    weir_device_ops ops = *true_ops;
    c.inside = trial % 2 == 1;
    c.machines = c.inside ? "aabb" : NULL;
    const weir_plan plan = plan_of("topk:0.1:ag", 1);
    if (way == 0) ops.make_room = no_room;
    if (way == 1) ops.open_room = no_opening;
    if (way == 2) ops.make_room = lie;
    if (way == 3) ops.make_room = lie_of_mark;
    if (way == 4) ops.make_room = lie_of_process;
    lay_out(&c, 1500);
    memset(c.steps, 0, sizeof c.steps);
    c.count = 3;
    c.other[1] = &ops;
    for (int s = 0; s < c.count; s++) c.steps[s] = (script_step){.plan = plan, .poisoned = -1};
    compare_rooms(&c, c.inside ? 4 : 3, false, true);
    c.other[1] = NULL;
  }
}

/* Whose room is harmed; its message is there when it tells its length. */
static struct {
  weir_engine *engine;
  const test_device *device;
  size_t byte;     /* of the message */
  uint64_t length; /* told instead of its own; 0: none */
} victim;

static weir_status harm_room(weir_transport *t, const weir_tag *tag, const weir_send *send,
                             size_t sends, weir_recv *recv, size_t recvs, double deadline_s) {
  const weir_bucket *bucket = &victim.engine->set.bucket[0];
  const size_t place = bucket->scheme == WEIR_SCHEME_GATHER ? (size_t)t->rank : 0;
  if (bucket->told != NULL && victim.length > 0)
    *(uint64_t *)(void *)(bucket->blocks + place * sizeof(uint64_t)) = victim.length;
  if (bucket->told != NULL && victim.length == 0) {
    unsigned char *at = weir_on_device_room(bucket, t->rank) + victim.byte, byte = 0;
    victim.device->get(&byte, at, 1);
    byte ^= 0x80;
    victim.device->put(at, &byte, 1);
    victim.device->get(&byte, at, 1);
  }
  t->ops = unharmed; /* once */
  return unharmed->transfer(t, tag, send, sends, recv, recvs, deadline_s);
}

static void harmed_body(member *m) {
  course *c = m->group->shared;
  script v = {c->steps, c->count, 0};
  buffers b;
  weir_engine *engine = NULL;
  const weir_engine_config config = config_of(m, c, &v);
  weir_status status = WEIR_OK;
  if (c->machines != NULL) status = weir_comm_find_hosts(m->comm, (uint64_t)c->machines[m->rank]);
  if (status == WEIR_OK) status = weir_engine_create(&engine, &config);
  if (status != WEIR_OK) group_fail(m->group, "%s", weir_last_error());
  make_buffers(c, true, &b);
  if (group_failed_by_now(m)) return;
  for (int s = 0; s < c->count; s++) {
    v.at = s;
    group_barrier(m); /* nobody is in the step before when the group ends */
    if (s == 1 && m->rank == 1) {
      victim.engine = engine;
      victim.device = &c->device;
      unharmed = m->transport->ops;
      harming = *unharmed;
      harming.transfer = harm_room;
      m->transport->ops = &harming;
    }
    c->status[m->rank][s] = one_step(m, c, engine, &b, s);
    const bool told = strstr(weir_last_error(), "rank 1 sent a malformed") != NULL ||
                      (engine->set.bucket[0].parts && /* which no host sees */
                       strstr(weir_last_error(), "a message of bucket 0 malformed") != NULL) ||
                      strstr(weir_last_error(), "rank 0 is gone") != NULL || /* who has found it */
                      strstr(weir_last_error(), "rank 2 is gone") != NULL ||
                      strstr(weir_last_error(), "rank 1 is gone") != NULL ||
                      strstr(weir_last_error(), "(this rank) is gone") != NULL;
    if (c->status[m->rank][s] != WEIR_OK && !told)
      group_fail(m->group, "rank %d: %s", m->rank, weir_last_error());
  }
  group_barrier(m); /* its engine is another's victim */
  weir_engine_free(engine);
  free_buffers(c, true, &b);
}

/* where: machines, or NULL for one.  What other machines have is not harmed. */
static void harm_room_of(const char *text, const char *where, int ranks, size_t byte,
                         uint64_t length) {
  static course c;
  c.device = test_device_open();
  lay_out(&c, 3000);
  memset(c.steps, 0, sizeof c.steps);
  c.where = (1U << ranks) - 1;
  c.rooms = true;
  c.inside = where != NULL;
  c.machines = where;
  c.count = 2;
  victim.byte = byte;
  victim.length = length;
  for (int s = 0; s < c.count; s++)
    c.steps[s] = (script_step){.plan = plan_of(text, 1), .poisoned = -1};
  make_room(&c);
  group_well(ranks, harmed_body, &c, text);
  for (int r = 0; r < ranks; r++) {
    cr_assert_eq(c.status[r][0], WEIR_OK);
    if (where != NULL && where[r] != where[1] && c.status[r][1] == WEIR_OK) continue;
    cr_assert(c.status[r][1] == WEIR_E_PROTOCOL || c.status[r][1] == WEIR_E_PEER,
              "%s, byte %zu: rank %d: %d", text, byte, r, (int)c.status[r][1]);
    same(c.after[r] + c.n, c.before[r] + c.n, c.n, "residual", r, 1);
  }
  free_room(&c);
}

static void harm_a_room(const char *text, int ranks, size_t byte, uint64_t length) {
  harm_room_of(text, NULL, ranks, byte, length);
}

/* All ranks find it, whose room it is too; the residual is what it was. */
Test(device_rooms, a_harmed_room_changes_nothing) {
  static const char *const plans[] = {
      "topk:0.1:ag",       "topk:0.1:ag:auto-fp32", "qsgd:0.125:ag",     "fp16:0.5:ag",
      "onebit:0.03125:ag", "terngrad:0.0625:ag",    "minifloat:0.25:ag", "companded:0.125:ag"};
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++)
    for (int ranks = 2; ranks < 4; ranks++) harm_a_room(plans[p], ranks, 0, 0);
  for (int ranks = 2; ranks < 4; ranks++) { /* what rank 1 sends to rank 0 */
    harm_a_room("qsgd:0.125:sra", ranks, 0, 0);
    harm_a_room("fp16:0.5:sra", ranks, 3, 0);
    harm_a_room("minifloat:0.25:sra", ranks, 0, 0);
    harm_a_room("companded:0.125:sra", ranks, 0, 0);
    harm_a_room("qsgd:0.125:compressed-ring", ranks, 0, 0); /* and around a ring to rank 2 or 0 */
    harm_a_room("fp16:0.5:compressed-ring", ranks, 3, 0);
    harm_a_room("qsgd:0.125:compressed-tree", ranks, 0, 0);
    harm_a_room("fp16:0.5:compressed-tree", ranks, 3, 0);
  }
  for (size_t byte = 0; byte < 24; byte += 3) /* rank 1 is the second step's root */
    harm_a_room("star:0.1:art-ring", 2 + (int)byte % 2, byte, 0);
  harm_a_room("topk:0.1:ag", 2, 15, 0);   /* the header's last byte, which is 0 */
  harm_a_room("qsgd:0.125:ag", 2, 19, 0); /* a scale's sign */
  harm_a_room("minifloat:0.25:ag", 2, 19, 0);
  harm_a_room("companded:0.125:ag", 2, 19, 0);
}

/* Too long for a room, and too short for a header: whose it is is said. */
Test(device_rooms, a_malformed_length_is_refused) {
  harm_a_room("topk:0.1:ag", 2, 0, (uint64_t)1 << 40);
  harm_a_room("topk:0.1:ag", 3, 0, 7);
  harm_a_room("qsgd:0.125:ag", 2, 0, 100);
  harm_a_room("star:0.1:art-ring", 2, 0, (uint64_t)1 << 40);
  harm_a_room("star:0.1:art-ring", 3, 0, 7);
  harm_a_room("star:0.1:art-ring", 3, 0, 16 + 4 * 299); /* one index less */
  harm_room_of("topk:0.1:ag", "aabb", 4, 0, (uint64_t)1 << 40);
  harm_room_of("topk:0.1:ag", "abab", 4, 0, 7);
  harm_room_of("topk:0.1:ag", "abab", 4, 0, 2408); /* than what is sent between machines */
}

/* A room that is harmed is found by its machine's ranks, what comes from another by who takes it
 * over. */
Test(device_rooms, inside_of_machines_harm_changes_nothing) {
  static course c;
  for (size_t m = 0; m < MACHINES; m++) {
    harm_room_of("topk:0.1:ag", machines[m], (int)strlen(machines[m]), 0, 0);
    harm_room_of("qsgd:0.125:ag", machines[m], (int)strlen(machines[m]), 0, 0);
  }
  c.device = test_device_open();
  for (int p = 0; p < 2; p++) {
    lay_out(&c, 3000);
    memset(c.steps, 0, sizeof c.steps);
    c.where = 15;
    c.rooms = c.inside = true;
    c.machines = "aabb";
    c.count = 2;
    c.harmed = 1;
    for (int s = 0; s < c.count; s++)
      c.steps[s] = (script_step){.plan = plan_of(p == 0 ? "topk:0.1:ag" : "qsgd:0.125:ag", 1),
                                 .poisoned = -1};
    make_room(&c);
    group_well(4, body, &c, NULL);
    for (int r = 0; r < 4; r++) {
      cr_assert(c.status[r][1] == WEIR_E_PROTOCOL || c.status[r][1] == WEIR_E_PEER, "rank %d: %d",
                r, (int)c.status[r][1]);
      same(c.after[r] + c.n, c.before[r] + c.n, c.n, "residual", r, 1);
    }
    free_room(&c);
  }
}
