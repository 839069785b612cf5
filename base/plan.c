/* Plans as text, which of their parts go together, and their digest. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/plan.h>

#include "base/base.h"
#include "base/schemes.h"

static const char *const codec_names[WEIR_CODEC_COUNT] = {
    [WEIR_CODEC_NONE] = "none",
    [WEIR_CODEC_BF16] = "bf16",
    [WEIR_CODEC_LWTOPK] = "lwtopk",
    [WEIR_CODEC_MSTOPK] = "mstopk",
    [WEIR_CODEC_TOPK] = "topk",
    [WEIR_CODEC_STAR] = "star",
    [WEIR_CODEC_VAR] = "var",
    [WEIR_CODEC_FP16] = "fp16",
    [WEIR_CODEC_QSGD] = "qsgd",
    [WEIR_CODEC_TERNGRAD] = "terngrad",
    [WEIR_CODEC_ONEBIT] = "onebit",
    [WEIR_CODEC_EFSIGNSGD] = "efsignsgd",
    [WEIR_CODEC_DGC] = "dgc",
    [WEIR_CODEC_SIDCO] = "sidco",
    [WEIR_CODEC_RANDOMK] = "randomk",
    [WEIR_CODEC_POWERSGD] = "powersgd",
    [WEIR_CODEC_QSGD_NEAREST] = "qsgd-nearest",
    [WEIR_CODEC_QSGD_L2] = "qsgd-l2",
    [WEIR_CODEC_QSGD_L2_NEAREST] = "qsgd-l2-nearest",
};
/* Encoders: how many bits an element they can be asked for; {0, 0}: not an encoder. */
static const struct {
  unsigned least, most;
} codec_bits[WEIR_CODEC_COUNT] = {
    [WEIR_CODEC_FP16] = {16, 16},    [WEIR_CODEC_QSGD] = {2, 8},
    [WEIR_CODEC_TERNGRAD] = {2, 2},  [WEIR_CODEC_ONEBIT] = {1, 1},
    [WEIR_CODEC_EFSIGNSGD] = {1, 1}, [WEIR_CODEC_QSGD_NEAREST] = {2, 8},
    [WEIR_CODEC_QSGD_L2] = {4, 8},   [WEIR_CODEC_QSGD_L2_NEAREST] = {4, 8},
};
static const char *const wire_names[WEIR_WIRE_COUNT] = {
    [WEIR_WIRE_PAPER] = "u32-fp32",
    [WEIR_WIRE_AUTO_FP32] = "auto-fp32",
    [WEIR_WIRE_AUTO_BF16] = "auto-bf16",
    [WEIR_WIRE_AUTO_FP16] = "auto-fp16",
};

const char *weir_codec_name(uint32_t codec) {
  return codec < WEIR_CODEC_COUNT ? codec_names[codec] : NULL;
}
const char *weir_wire_name(uint32_t wire) {
  return wire < WEIR_WIRE_COUNT ? wire_names[wire] : NULL;
}

static bool is_dense(uint32_t codec) {
  return codec == WEIR_CODEC_NONE || codec == WEIR_CODEC_BF16 || codec == WEIR_CODEC_POWERSGD;
}

/* What a plan string's number is times the ratio. */
static double ratio_unit(uint32_t codec) {
  return codec == WEIR_CODEC_POWERSGD ? WEIR_POWERSGD_RANK_MAX : 1;
}

static weir_status misfit(const weir_plan *plan, const char *expected) {
  char name[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_collective(plan, name);
  return weir_fail(WEIR_E_INVALID, "codec %s goes with %s, not %s", codec_names[plan->codec],
                   expected, name);
}

static weir_status check_dense(const weir_plan *plan) {
  const char *codec = codec_names[plan->codec];
  const bool thin = plan->codec == WEIR_CODEC_POWERSGD;
  const double rank = plan->cr * WEIR_POWERSGD_RANK_MAX;
  if (plan->scheme != (thin ? WEIR_SCHEME_LOW_RANK : WEIR_SCHEME_DENSE))
    return misfit(plan, "dense-ring and its like");
  if (plan->algorithm == WEIR_ALGORITHM_NATIVE && plan->codec == WEIR_CODEC_BF16)
    return weir_fail(WEIR_E_INVALID, "native sums fp32: what bf16 loses there could not be kept");
  if (plan->codec == WEIR_CODEC_POWERSGD && !(rank >= 1 && rank == (double)(unsigned)rank))
    return weir_fail(WEIR_E_INVALID, "codec %s takes a rank from 1 to %d, not %g", codec,
                     WEIR_POWERSGD_RANK_MAX, rank);
  if (plan->codec != WEIR_CODEC_POWERSGD && plan->cr != 1.0)
    return weir_fail(WEIR_E_INVALID, "codec %s keeps everything: its ratio is 1, not %g", codec,
                     plan->cr);
  if (plan->wire != WEIR_WIRE_PAPER)
    return weir_fail(WEIR_E_INVALID, "codec %s takes no wire format", codec);
  return WEIR_OK;
}

static weir_status check_encoder(const weir_plan *plan) {
  const char *codec = codec_names[plan->codec];
  const unsigned least = codec_bits[plan->codec].least, most = codec_bits[plan->codec].most;
  if (plan->scheme != WEIR_SCHEME_GATHER && plan->scheme != WEIR_SCHEME_COMPRESSED)
    return misfit(plan, "ag, sra and its like");
  if (plan->wire != WEIR_WIRE_PAPER)
    return weir_fail(WEIR_E_INVALID, "codec %s takes no wire format", codec);
  const double bits = plan->cr * 32;
  if (!(bits >= least && bits <= most && bits == (double)(unsigned)bits))
    return weir_fail(WEIR_E_INVALID,
                     "codec %s takes %u to %u bits an element: its ratio is bits / 32, not %g",
                     codec, least, most, plan->cr);
  return WEIR_OK;
}

/* Each rank's own selection: all-gathered, or of its machine's sum, where tensors are not told
 * apart. */
static weir_status check_selection(const weir_plan *plan) {
  const bool by_tensor = plan->codec == WEIR_CODEC_LWTOPK || plan->codec == WEIR_CODEC_DGC;
  if (plan->scheme == WEIR_SCHEME_GATHER || (plan->scheme == WEIR_SCHEME_HITOPK && !by_tensor))
    return WEIR_OK;
  return misfit(plan, by_tensor ? "ag" : "ag and hitopk");
}

weir_status weir_plan_check(const weir_plan *plan) {
  if ((plan->buckets == 0) != (plan->layout == 0))
    return weir_fail(WEIR_E_INVALID, "plan of %u buckets names layout %08x", plan->buckets,
                     plan->layout);
  if (plan->codec >= WEIR_CODEC_COUNT || !weir_collective_legal(plan) ||
      plan->wire >= WEIR_WIRE_COUNT)
    return weir_fail(WEIR_E_INVALID, "plan names an unknown codec, collective or wire format");
  if (!(plan->cr > 0.0 && plan->cr <= 1.0)) /* also refuses NaN */
    return weir_fail(WEIR_E_INVALID, "compression ratio %g is outside (0, 1]", plan->cr);
  const char *codec = codec_names[plan->codec];
  if (is_dense(plan->codec)) return check_dense(plan);
  if (codec_bits[plan->codec].most > 0) return check_encoder(plan);
  const bool shared = plan->codec == WEIR_CODEC_STAR || plan->codec == WEIR_CODEC_VAR ||
                      plan->codec == WEIR_CODEC_RANDOMK;
  if (!shared) return check_selection(plan);
  if (plan->scheme != WEIR_SCHEME_SHARED) return misfit(plan, "art-ring and its like");
  /* Sums of halves would overflow; an all-reduce takes bf16. */
  if (plan->wire == WEIR_WIRE_AUTO_FP16)
    return weir_fail(WEIR_E_INVALID, "codec %s takes fp32 or bf16 values, not auto-fp16", codec);
  return WEIR_OK;
}

/* name: of what has a number below count. */
static bool look_up(const char *(*name)(uint32_t), uint32_t count, const char *text, size_t length,
                    uint32_t *id) {
  for (uint32_t i = 0; i < count; i++)
    if (strlen(name(i)) == length && memcmp(name(i), text, length) == 0) {
      *id = i;
      return true;
    }
  return false;
}

/* Splits at ':' into at most 4 fields; 0 when there are more. */
static size_t split(const char *text, const char *field[4], size_t length[4]) {
  size_t n = 0;
  for (;;) {
    if (n == 4) return 0;
    const char *end = strchr(text, ':');
    field[n] = text;
    length[n++] = end ? (size_t)(end - text) : strlen(text);
    if (!end) return n;
    text = end + 1;
  }
}

weir_status weir_plan_parse(const char *text, weir_plan *plan) {
  const char *field[4];
  size_t length[4];
  const size_t n = text ? split(text, field, length) : 0;
  if (n < 3)
    return weir_fail(WEIR_E_PARSE, "plan '%s' is not of the form CODEC:CR:COLLECTIVE[:WIRE]",
                     text ? text : "");
  weir_plan p = {0};
  if (!look_up(weir_codec_name, WEIR_CODEC_COUNT, field[0], length[0], &p.codec))
    return weir_fail(
        WEIR_E_PARSE,
        "plan '%s': unknown codec (none, bf16, lwtopk, mstopk, topk, star, var, fp16, "
        "qsgd, terngrad, onebit, efsignsgd, dgc, sidco, randomk, powersgd, qsgd-nearest, "
        "qsgd-l2, qsgd-l2-nearest)",
        text);
  char collective[WEIR_COLLECTIVE_TEXT_MAX] = "";
  if (length[2] < sizeof collective) memcpy(collective, field[2], length[2]);
  if (!weir_collective_parse(collective, p.codec == WEIR_CODEC_POWERSGD, &p))
    return weir_fail(
        WEIR_E_PARSE,
        "plan '%s': unknown collective (hitopk, or ag, dense, art or compressed alone; "
        "ag- with bruck, ring or doubling; sra, hier-sra, compressed- with ring or "
        "tree; native; dense- or art- with ring, tree, halving, double-tree, torus, "
        "star, doubling, direct, hier-ring, hier-tree, hier-halving or "
        "hier-double-tree)",
        text);
  if (n == 4 && !look_up(weir_wire_name, WEIR_WIRE_COUNT, field[3], length[3], &p.wire))
    return weir_fail(WEIR_E_PARSE,
                     "plan '%s': unknown wire format (u32-fp32, auto-fp32, auto-bf16, auto-fp16)",
                     text);
  char *end = NULL;
  errno = 0;
  p.cr = strtod(field[1], &end) / ratio_unit(p.codec);
  if (length[1] == 0 || end != field[1] + length[1] || errno == ERANGE)
    return weir_fail(WEIR_E_PARSE, "plan '%s': the compression ratio is not a number", text);
  const weir_status status = weir_plan_check(&p);
  if (status == WEIR_OK) *plan = p;
  return status;
}

void weir_plan_format(const weir_plan *plan, char text[WEIR_PLAN_TEXT_MAX]) {
  const char *codec = weir_codec_name(plan->codec);
  const char *wire = weir_wire_name(plan->wire);
  char collective[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_collective(plan, collective);
  (void)snprintf(text, WEIR_PLAN_TEXT_MAX, "%s:%.6g:%s%s%s", codec ? codec : "?",
                 plan->cr * ratio_unit(plan->codec), collective,
                 plan->wire == WEIR_WIRE_PAPER ? "" : ":",
                 plan->wire == WEIR_WIRE_PAPER ? "" : (wire ? wire : "?"));
  if (plan->buckets == 0) return;
  const size_t length = strlen(text);
  (void)snprintf(text + length, WEIR_PLAN_TEXT_MAX - length, "/%u", plan->buckets);
}

uint64_t weir_plan_digest(const weir_plan *plan) {
  uint64_t h = WEIR_HASH_INIT;
  h = weir_hash(h, &plan->id, sizeof plan->id);
  h = weir_hash(h, &plan->codec, sizeof plan->codec);
  const uint8_t algorithms[] = {plan->algorithm, plan->inside, plan->broadcast};
  h = weir_hash(h, &plan->scheme, sizeof plan->scheme);
  h = weir_hash(h, algorithms, sizeof algorithms);
  h = weir_hash(h, &plan->wire, sizeof plan->wire);
  h = weir_hash(h, &plan->cr, sizeof plan->cr);
  h = weir_hash(h, &plan->buckets, sizeof plan->buckets);
  h = weir_hash(h, &plan->layout, sizeof plan->layout);
  return h ? h : 1;
}
