/* What compressing is foretold to take on a device: times of all codecs that policies propose, by
 * the way that steps go there, and what becomes of a device that fails meanwhile.  The device is
 * tests/emulate's. */
#include <math.h>
#include <time.h>

#include "device.h"
#include "group.h"
#include "kernels/fit.h"

/* One of each codec of the arms, as a controller has them priced (controller/learn.c). */
static const uint32_t codecs[] = {WEIR_CODEC_NONE,     WEIR_CODEC_BF16,     WEIR_CODEC_TOPK,
                                  WEIR_CODEC_STAR,     WEIR_CODEC_FP16,     WEIR_CODEC_QSGD,
                                  WEIR_CODEC_POWERSGD, WEIR_CODEC_COMPANDED};
#define CODECS (sizeof codecs / sizeof *codecs)

static weir_plan plan_of(uint32_t codec) {
  return weir_kernel_fit_plan(codec, 0.01, WEIR_WIRE_AUTO_BF16);
}

/* --- a device that is late, that fails, and that is counted --------------------------------- */

static test_device there;
static weir_device_ops altered;
static int calls, failing;               /* of what may fail; the call that does, -1: none */
static int devices, pinned, memories;    /* that there are */
static double await_element_s, decode_s; /* that these take longer */
static size_t elements;                  /* of the bucket reserved last */

static bool fails(void) { return calls++ == failing; }

static void sleep_s(double seconds) {
  const struct timespec pause = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
  (void)nanosleep(&pause, NULL);
}

static const char *words(void) { return "it was to fail"; }

static weir_status create(int device, void *stream, size_t n, float momentum, bool feedback,
                          double timeout_s, weir_device **out) {
  if (fails()) return WEIR_E_NOMEM;
  const weir_status status =
      there.ops->create(device, stream, n, momentum, feedback, timeout_s, out);
  devices += status == WEIR_OK;
  return status;
}

static void free_device(weir_device *device) {
  devices -= device != NULL;
  there.ops->free(device);
}

static weir_status reserve(weir_device *device, const weir_device_bucket *buckets, size_t count,
                           size_t ranks) {
  elements = buckets[0].n;
  return fails() ? WEIR_E_NOMEM : there.ops->reserve(device, buckets, count, ranks);
}

static weir_status pin(weir_device *device, size_t bytes, void **out) {
  if (fails()) return WEIR_E_NOMEM;
  const weir_status status = there.ops->pin(device, bytes, out);
  pinned += status == WEIR_OK;
  return status;
}

static void unpin(weir_device *device, void *memory) {
  pinned -= memory != NULL;
  there.ops->unpin(device, memory);
}

static weir_status memory(weir_device *device, size_t bytes, void **out) {
  if (fails()) return WEIR_E_NOMEM;
  const weir_status status = there.ops->memory(device, bytes, out);
  memories += status == WEIR_OK;
  return status;
}

static void forget(weir_device *device, void *memory) {
  memories -= memory != NULL;
  there.ops->forget(device, memory);
}

static weir_status copy(weir_device *device, void *to, const void *from, size_t bytes) {
  return fails() ? WEIR_E_INTERNAL : there.ops->copy(device, to, from, bytes);
}

static weir_status compress(weir_device *device, size_t bucket, const weir_device_task *task) {
  return fails() ? WEIR_E_INTERNAL : there.ops->compress(device, bucket, task);
}

static weir_status await(weir_device *device, size_t bucket, const weir_device_told **told) {
  if (fails()) return WEIR_E_TIMEOUT;
  sleep_s((double)elements * await_element_s);
  return there.ops->await(device, bucket, told);
}

static weir_status decode(weir_device *device, size_t bucket, const void *message, size_t bytes,
                          bool first) {
  if (fails()) return WEIR_E_INTERNAL;
  sleep_s(decode_s);
  return there.ops->decode(device, bucket, message, bytes, first);
}

static weir_status publish(weir_device *device, size_t bucket, void *const *g, float share) {
  return fails() ? WEIR_E_INTERNAL : there.ops->publish(device, bucket, g, share);
}

static weir_status finish(weir_device *device, bool *overflow) {
  return fails() ? WEIR_E_TIMEOUT : there.ops->finish(device, overflow);
}

static void alter(void) {
  there = test_device_open();
  altered = *there.ops;
  altered.last_error = words;
  altered.create = create;
  altered.free = free_device;
  altered.reserve = reserve;
  altered.pin = pin;
  altered.unpin = unpin;
  altered.memory = memory;
  altered.forget = forget;
  altered.copy = copy;
  altered.compress = compress;
  altered.await = await;
  altered.decode = decode;
  altered.publish = publish;
  altered.finish = finish;
  failing = -1;
  await_element_s = decode_s = 0;
}

/* --- a rank that prices ----------------------------------------------------------------------- */

typedef struct asked {
  size_t tensors;
  const size_t *offset, *rows;
  const uint8_t *types;
  double momentum;
  size_t most;
  const weir_plan *plans;
  size_t count;
  double seconds[CODECS];
  weir_status status; /* out */
} asked;

/* Rank 0 of a group whose others do nothing meanwhile. */
static void price(member *m) {
  asked *a = m->group->shared;
  weir_engine *engine = NULL;
  weir_plan first;
  if (m->rank != 0) return;
  (void)weir_plan_parse("none:1:dense-ring", &first);
  const weir_engine_config config = {.comm = m->comm,
                                     .layout = {a->tensors, a->offset},
                                     .rows = a->rows,
                                     .types = a->types,
                                     .momentum = a->momentum,
                                     .first_plan = first,
                                     .device_ops = &altered,
                                     .device_timeout_s = 60,
                                     .devices = true};
  const int turn = failing;
  failing = -1; /* not of this engine's own */
  if (weir_engine_create(&engine, &config) != WEIR_OK) {
    group_fail(m->group, "%s", weir_last_error());
    return;
  }
  const int before[] = {devices, pinned, memories};
  calls = 0;
  failing = turn;
  a->status = weir_engine_price(engine, a->most, a->plans, a->count, a->seconds);
  failing = -1;
  if ((a->status == WEIR_OK) == (turn >= 0 && calls > turn))
    group_fail(m->group, "call %d of %d fails, and pricing ends with %s", turn, calls,
               weir_status_name(a->status));
  if (devices != before[0] || pinned != before[1] || memories != before[2])
    group_fail(m->group, "call %d: %d devices, %d page-locked, %d on the device are left over",
               turn, devices - before[0], pinned - before[1], memories - before[2]);
  weir_engine_free(engine);
}

static void price_well(asked *a, int ranks) {
  group_well(ranks, price, a, NULL);
  cr_assert_eq(a->status, WEIR_OK, "%s", weir_status_name(a->status));
}

/* As matrices, vectors and tensors of 16 bits; of 30 times as many elements each takes longer, and
 * longer again where all but the first are foretold. */
Test(device_price, every_codec_that_policies_propose_has_a_time) {
  static const size_t few[] = {0, 400, 1000, 1003}, rows[] = {20, 1, 1};
  static const size_t many[] = {0, 12800, 30000, 30096}, many_rows[] = {64, 1, 1};
  static const size_t most[] = {0, 128000, 300000, 300960};
  static const uint8_t types[] = {WEIR_FP32, WEIR_BF16, WEIR_FP16};
  weir_plan plans[CODECS];
  for (size_t c = 0; c < CODECS; c++) plans[c] = plan_of(codecs[c]);
  alter();
  await_element_s = 0.2e-6; /* a device's own times are all launching at such sizes */
  for (int form = 0; form < 3; form++) {
    asked a[3] = {{3, few, rows, NULL, 0, 0, plans, CODECS, {0}, WEIR_OK},
                  {3, many, many_rows, NULL, 0, 0, plans, CODECS, {0}, WEIR_OK},
                  {3, most, many_rows, NULL, 0, 30096, plans, CODECS, {0}, WEIR_OK}};
    for (int i = 0; i < 3; i++) {
      a[i].types = form == 1 ? types : NULL;
      a[i].momentum = form == 2 ? 0.9 : 0;
      price_well(&a[i], 3);
    }
    for (size_t c = 0; c < CODECS; c++) {
      cr_expect(isfinite(a[0].seconds[c]) && a[0].seconds[c] > 0, "%s: %g",
                weir_codec_name(codecs[c]), a[0].seconds[c]);
      for (int i = 1; i < 3; i++)
        cr_expect(isfinite(a[i].seconds[c]) && a[i].seconds[c] > a[i - 1].seconds[c],
                  "%s: %g of more, %g of fewer", weir_codec_name(codecs[c]), a[i].seconds[c],
                  a[i - 1].seconds[c]);
    }
  }
}

/* Waiting takes 10 us an element: 41 ms of the 4096 that are run, 0.64 of 64, so 164 ms of 16384.
 * What the emulation takes beside that is measured without waiting. */
Test(device_price, longer_gradients_follow_the_line) {
  static const size_t offset[] = {0, 10000, 16384};
  const weir_plan plan = plan_of(WEIR_CODEC_TOPK);
  asked quick = {2, offset, NULL, NULL, 0, 4096, &plan, 1, {0}, WEIR_OK}, late = quick;
  alter();
  price_well(&quick, 1);
  await_element_s = 10e-6;
  price_well(&late, 1);
  cr_assert_gt(late.seconds[0], 0.9 * 0.164);
  cr_assert_lt(late.seconds[0] - quick.seconds[0], 1.5 * 0.164, "%g and %g", late.seconds[0],
               quick.seconds[0]);
}

/* Decoding a message takes 20 ms.  Of messages that come apart there are as many as ranks, beyond
 * the four that are decoded, too; of what is summed there are none, and the list that one rank
 * selects is not decoded. */
Test(device_price, messages_count_once_a_rank) {
  static const size_t offset[] = {0, 500};
  static const int ranks[] = {1, 3, 8};
  const weir_plan plans[] = {plan_of(WEIR_CODEC_QSGD), plan_of(WEIR_CODEC_TOPK),
                             plan_of(WEIR_CODEC_STAR), plan_of(WEIR_CODEC_BF16)};
  alter();
  decode_s = 20e-3;
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    asked a = {1, offset, NULL, NULL, 0, 0, plans, 4, {0}, WEIR_OK};
    price_well(&a, ranks[i]);
    for (size_t p = 0; p < 4; p++) {
      const double due = p < 2 ? 20e-3 * ranks[i] : 0;
      cr_expect(a.seconds[p] >= 0.9 * due && a.seconds[p] < 1.5 * due + 18e-3,
                "plan %zu of %d ranks: %g", p, ranks[i], a.seconds[p]);
    }
  }
}

/* Whichever of its calls fails: the failure is told, and nothing of it stays on the device.  Calls
 * repeat from step to step, so of the later ones fewer fail. */
Test(device_price, a_failure_leaves_nothing_behind) {
  static const size_t offset[] = {0, 300, 400};
  const weir_plan plans[] = {plan_of(WEIR_CODEC_NONE), plan_of(WEIR_CODEC_QSGD)};
  asked a = {2, offset, NULL, NULL, 0, 200, plans, 2, {0}, WEIR_E_NOMEM};
  int failed = 0;
  alter();
  for (failing = 0; a.status != WEIR_OK; failed++) {
    const int turn = failing;
    group_well(2, price, &a, NULL);
    failing = turn + 1 + turn / 12;
  }
  cr_assert_gt(calls, 100); /* two sizes, two plans, seven steps of some four calls */
  cr_assert_gt(failed, 20);
}

Test(device_price, without_a_device_there_is_no_time) {
  static const size_t offset[] = {0, 400};
  weir_transport *alone = NULL;
  weir_comm *comm = NULL;
  weir_engine *engine = NULL;
  double seconds;
  const weir_plan plan = plan_of(WEIR_CODEC_TOPK);
  cr_assert_eq(weir_transport_inproc(&alone, "price host", 0, 1, 5), WEIR_OK);
  cr_assert_eq(weir_comm_create(&comm, alone, 5), WEIR_OK);
  const weir_engine_config config = {.comm = comm, .layout = {1, offset}, .first_plan = plan};
  cr_assert_eq(weir_engine_create(&engine, &config), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_engine_price(engine, 0, &plan, 1, &seconds), WEIR_E_UNSUPPORTED);
  weir_engine_free(engine);
  weir_comm_free(comm);
  alone->ops->destroy(alone);
}
