/* Tensors of several types in a session: what weir_register_typed and weir_submit take and refuse,
 * and that averages are right where tensors have changed places for the engine. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "session_ranks.h"

enum { RANKS = 3, N = 300, TENSORS = 4, STEPS = 3 };

static const struct {
  const char *name;
  unsigned type;
} tensors[TENSORS] = {
    {"a.weight", WEIR_BF16}, {"a.bias", WEIR_FP16}, {"b.weight", WEIR_FP32}, {"b.bias", WEIR_FP32}};

static double gradient(int rank, int step, size_t t, size_t i) {
  return (double)((int)((i * 37 + t * 11 + (size_t)rank * 5 + (size_t)step * 3) % 255) - 127) / 64;
}

typedef struct worker {
  int rank;
  const char *group, *policy, *full;
  unsigned swap; /* of rank 1, the type of tensor 0 */
  weir_status status;
  char message[512];
  double worst; /* the most that an average is off, in units of the type; floats: at all */
} worker;

static void put(size_t t, void *to, size_t i, double x) {
  if (tensors[t].type == WEIR_FP32)
    ((float *)to)[i] = (float)x;
  else
    ((uint16_t *)to)[i] = half_bits(tensors[t].type, x);
}

static double due(size_t t, int step, size_t i) {
  float sum = 0;
  for (int r = 0; r < RANKS; r++) sum += (float)gradient(r, step, t, i); /* exact */
  const float average = sum * (1.0F / RANKS);
  return tensors[t].type == WEIR_FP32 ? (double)average
                                      : half_nearest(tensors[t].type, (double)average);
}

static double found(size_t t, const void *from, size_t i) {
  return tensors[t].type == WEIR_FP32 ? (double)((const float *)from)[i]
                                      : half_value(tensors[t].type, ((const uint16_t *)from)[i]);
}

static weir_status one_step(worker *w, weir_session *session, int step, void **g) {
  weir_status status = weir_step_begin(session, NULL);
  for (uint32_t t = 0; t < TENSORS && status == WEIR_OK; t++) {
    for (size_t i = 0; i < N; i++) put(t, g[t], i, gradient(w->rank, step, t, i));
    status = weir_submit(session, t, g[t]);
  }
  if (status == WEIR_OK) status = weir_step_end(session, NULL);
  for (size_t t = 0; t < TENSORS && status == WEIR_OK; t++)
    for (size_t i = 0; i < N; i++)
      w->worst = fmax(w->worst, fabs(found(t, g[t], i) - due(t, step, i)));
  return status;
}

static void *work(void *argument) {
  worker *w = argument;
  weir_options options = session_options(w->rank, RANKS, w->group, w->policy);
  weir_session *session = NULL;
  void *g[TENSORS];
  options.full_precision = w->full;
  w->status = weir_session_create(&session, &options);
  for (size_t t = 0; t < TENSORS; t++) {
    const unsigned type = t == 0 && w->rank == 1 ? w->swap : tensors[t].type;
    g[t] = malloc(N * sizeof(float));
    if (w->status == WEIR_OK)
      w->status = weir_register_typed(session, tensors[t].name, 10, N / 10, type, NULL);
  }
  if (w->status == WEIR_OK) w->status = weir_session_start(session);
  for (int step = 0; step < STEPS && w->status == WEIR_OK; step++)
    w->status = one_step(w, session, step, g);
  if (w->status != WEIR_OK) (void)snprintf(w->message, sizeof w->message, "%s", weir_last_error());
  weir_session_free(session);
  for (size_t t = 0; t < TENSORS; t++) free(g[t]);
  return NULL;
}

static void run(worker *w, const char *policy, const char *full, unsigned swap) {
  static int turn;
  char group[64];
  (void)snprintf(group, sizeof group, "session types %d", turn++);
  for (int r = 0; r < RANKS; r++)
    w[r] = (worker){.rank = r, .group = group, .policy = policy, .full = full, .swap = swap};
  session_threads(w, sizeof *w, RANKS, work);
}

/* Sums of these gradients are exact whatever their order, and tensors in full precision go last. */
Test(session_types, averages_are_those_of_floats_rounded_once) {
  static const char *const full[] = {NULL, "a.*", "*bias", "<1000"};
  for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
    worker w[RANKS];
    run(w, "fixed:none:1:dense-ring", full[i], WEIR_BF16);
    for (int r = 0; r < RANKS; r++) {
      cr_assert_eq(w[r].status, WEIR_OK, "%s", w[r].message);
      cr_assert_eq(w[r].worst, 0, "full precision %s: off by %g", full[i] ? full[i] : "none",
                   w[r].worst);
    }
  }
}

/* What is in full precision is right beside a plan that loses, wherever it went. */
Test(session_types, full_precision_keeps_types) {
  worker w[RANKS];
  run(w, "fixed:topk:0.01:ag", "*", WEIR_BF16);
  for (int r = 0; r < RANKS; r++)
    cr_assert(w[r].status == WEIR_OK && w[r].worst == 0, "%s", w[r].message);
}

Test(session_types, ranks_must_register_the_same_types) {
  worker w[RANKS];
  run(w, "fixed:none:1:dense-ring", NULL, WEIR_FP16);
  for (int r = 0; r < RANKS; r++) {
    cr_assert_eq(w[r].status, WEIR_E_MISMATCH, "rank %d: %s", r, w[r].message);
    cr_assert(strstr(w[r].message, "of other types") != NULL, "%s", w[r].message);
  }
}

static weir_session *alone(void) {
  const weir_options options =
      session_options(0, 1, "session types alone", "fixed:none:1:dense-ring");
  weir_session *session = NULL;
  cr_assert_eq(weir_session_create(&session, &options), WEIR_OK, "%s", weir_last_error());
  return session;
}

Test(session_types, unknown_types_and_late_ones_are_refused) {
  weir_session *session = alone();
  uint32_t tensor = 7;
  cr_assert_eq(weir_register_typed(session, "w", 1, 4, 3, &tensor), WEIR_E_INVALID);
  cr_assert_str_eq(weir_last_error(),
                   "tensor \"w\" has type 3; WEIR_FP32, WEIR_FP16 and WEIR_BF16 are known");
  cr_assert_eq(tensor, 7);
  cr_assert_eq(weir_register_typed(session, "w", 1, 4, UINT32_MAX, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_register_typed(session, NULL, 1, 4, WEIR_BF16, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_register_typed(NULL, "w", 1, 4, WEIR_BF16, NULL), WEIR_E_INVALID);
  cr_assert_eq(weir_register_typed(session, "w", 1, 4, WEIR_BF16, &tensor), WEIR_OK);
  cr_assert_eq(tensor, 0);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_typed(session, "v", 1, 4, WEIR_BF16, &tensor), WEIR_E_STATE);
  weir_session_free(session);
}

Test(session_types, gradients_lie_at_multiples_of_their_elements) {
  weir_session *session = alone();
  _Alignas(8) unsigned char room[64] = {0};
  for (unsigned type = WEIR_FP32; type <= WEIR_BF16; type++)
    cr_assert_eq(weir_register_typed(session, "w", 1, 4, type, NULL), WEIR_OK);
  cr_assert_eq(weir_register_typed(session, "none", 1, 0, WEIR_BF16, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
  for (uint32_t t = 1; t <= 2; t++) {
    cr_assert_eq(weir_submit(session, t, room + 16 * t + 1), WEIR_E_INVALID);
    cr_assert(strstr(weir_last_error(), "at a multiple of 2") != NULL, "%s", weir_last_error());
    cr_assert_eq(weir_submit(session, t, NULL), WEIR_E_INVALID);
    cr_assert_eq(weir_submit(session, t, room + 16 * t + 2), WEIR_OK, "%s", weir_last_error());
  }
  cr_assert_eq(weir_submit(session, 0, room + 2), WEIR_E_INVALID);
  cr_assert(strstr(weir_last_error(), "at a multiple of 4") != NULL, "%s", weir_last_error());
  cr_assert_eq(weir_submit(session, 0, room), WEIR_OK);
  cr_assert_eq(weir_submit(session, 3, NULL), WEIR_OK);
  cr_assert_eq(weir_step_end(session, NULL), WEIR_OK, "%s", weir_last_error());
  weir_session_free(session);
}

/* Nothing is written behind a tensor's last element. */
Test(session_types, as_much_is_written_as_there_is) {
  weir_session *session = alone();
  uint16_t g[6] = {0x1234, 0x3f80, 0xbf80, 0x4000, 0x1234, 0x1234};
  cr_assert_eq(weir_register_typed(session, "w", 1, 3, WEIR_BF16, NULL), WEIR_OK);
  cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
  for (int lost = 0; lost < 2; lost++) {
    if (lost) g[2] = 0x7f80; /* infinite */
    cr_assert_eq(weir_step_begin(session, NULL), WEIR_OK);
    cr_assert_eq(weir_submit(session, 0, g + 1), WEIR_OK);
    cr_assert_eq(weir_step_end(session, NULL), lost ? WEIR_E_NONFINITE : WEIR_OK);
    const uint16_t due[2][6] = {{0x1234, 0x3f80, 0xbf80, 0x4000, 0x1234, 0x1234},
                                {0x1234, 0, 0, 0, 0x1234, 0x1234}};
    cr_assert_eq(memcmp(g, due[lost], sizeof g), 0);
  }
  weir_session_free(session);
}

/* 3, 4 and 12 together have a norm of 13: halves of them are exact in each type.  A third of the
 * norm rounds 16 bits once: 3, 4 and 12 over 3 are 1 and 4 exactly, and 4/3 the nearest of its
 * type. */
Test(session_types, sixteen_bits_are_clipped) {
  static const double limits[] = {6.5, 13, 13.0 / 3};
  static const uint16_t fp16[] = {0x3e00, 0x4200, 0x3c00}, bf16[] = {0x4000, 0x4080, 0x3fab};
  for (int k = 0; k < 3; k++) {
    weir_session *session = alone();
    float w[1] = {12};
    uint16_t h[1] = {0x4200}, b[1] = {0x4080}; /* 3, 4 */
    double norm = 7;
    cr_assert_eq(weir_register_tensor(session, "w", 1, NULL), WEIR_OK);
    cr_assert_eq(weir_register_typed(session, "h", 1, 1, WEIR_FP16, NULL), WEIR_OK);
    cr_assert_eq(weir_register_typed(session, "b", 1, 1, WEIR_BF16, NULL), WEIR_OK);
    cr_assert_eq(weir_session_start(session), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(weir_clip(session, (void *[]){w, h, b}, limits[k], &norm), WEIR_OK);
    cr_assert_eq(norm, 13);
    cr_assert_eq(h[0], fp16[k], "%#x", (unsigned)h[0]);
    cr_assert_eq(b[0], bf16[k], "%#x", (unsigned)b[0]);
    cr_assert_eq(w[0], k == 0 ? 6 : k == 1 ? 12 : 4, "%.9g", (double)w[0]);
    weir_session_free(session);
  }
}
