/* Plans as text, which of their parts go together, and their digest. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/plan.h>

#include "base/base.h"
#include "base/numerals.h"
#include "base/path.h"
#include "base/schemes.h"
#include "kernels/codec.h"

static const char *const wire_names[WEIR_WIRE_COUNT] = {
    [WEIR_WIRE_PAPER] = "u32-fp32",      [WEIR_WIRE_AUTO_FP32] = "auto-fp32",
    [WEIR_WIRE_AUTO_BF16] = "auto-bf16", [WEIR_WIRE_AUTO_FP16] = "auto-fp16",
    [WEIR_WIRE_HUFFMAN] = "huffman",
};

const char *weir_codec_name(uint32_t codec) {
  return codec < WEIR_CODEC_COUNT ? weir_codecs[codec]->name : NULL;
}
const char *weir_wire_name(uint32_t wire) {
  return wire < WEIR_WIRE_COUNT ? wire_names[wire] : NULL;
}

/* What a plan string's number is times the ratio. */
static double ratio_unit(const weir_codec *codec) {
  return codec->low_rank ? WEIR_POWERSGD_RANK_MAX : 1;
}

/* Names of what the set holds of so many, as "ag, hitopk". */
static void list_names(const char *(*name)(uint32_t), uint32_t count, uint32_t set, char *text,
                       size_t room) {
  size_t length = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < count && length < room; i++)
    if (set >> i & 1)
      length +=
          (size_t)snprintf(text + length, room - length, "%s%s", length > 0 ? ", " : "", name(i));
}

static const char *scheme_name(uint32_t scheme) { return weir_schemes[scheme].name; }

bool weir_sums_rounded(const weir_plan *plan) {
  return weir_codecs[plan->codec]->rounds || weir_factors_encoded(plan) ||
         ((plan->scheme == WEIR_SCHEME_SHARED || plan->scheme == WEIR_SCHEME_LOW_RANK) &&
          plan->wire >= WEIR_WIRE_AUTO_BF16);
}

static weir_status check_scheme(const weir_codec *codec, const weir_plan *plan) {
  char name[WEIR_COLLECTIVE_TEXT_MAX], expected[WEIR_PLAN_TEXT_MAX];
  weir_plan_collective(plan, name);
  if (weir_sums_natively(plan) && weir_sums_rounded(plan))
    return weir_fail(WEIR_E_INVALID, "%s sums fp32: what %s loses there could not be kept", name,
                     codec->rounds ? codec->name : weir_wire_name(plan->wire));
  if (codec->schemes >> plan->scheme & 1) {
    weir_path path;
    if (!weir_path_of(plan, &path) || weir_path_compresses(&path) != codec->dense) return WEIR_OK;
    return weir_fail(WEIR_E_INVALID, "%s %s, which is not for codec %s", name,
                     codec->dense ? "compresses" : "does not compress", codec->name);
  }
  list_names(scheme_name, WEIR_SCHEME_COUNT, codec->schemes, expected, sizeof expected);
  return weir_fail(WEIR_E_INVALID, "codec %s goes with %s, by any algorithm, not %s", codec->name,
                   expected, name);
}

bool weir_codes_shorten(const weir_plan *plan) {
  const bool sums = plan->scheme == WEIR_SCHEME_COMPRESSED && plan->algorithm == WEIR_ALGORITHM_SRA;
  return weir_factors_encoded(plan) ||
         (weir_codecs[plan->codec]->scales > 0 && (sums || plan->scheme == WEIR_SCHEME_GATHER));
}

static weir_status check_wire(const weir_codec *codec, const weir_plan *plan) {
  char expected[WEIR_PLAN_TEXT_MAX];
  if (codec->wires == 0 && plan->wire != WEIR_WIRE_PAPER)
    return weir_fail(WEIR_E_INVALID, "codec %s takes no wire format", codec->name);
  const bool factors = weir_factors_encoded(plan), huffman = plan->wire == WEIR_WIRE_HUFFMAN;
  if (factors && plan->wire != WEIR_WIRE_PAPER && !huffman)
    return weir_fail(WEIR_E_INVALID,
                     "codec %s by sra or one-shot takes huffman or no wire format: %s's %g bits"
                     " travel",
                     codec->name, weir_codec_name(codec->factors.codec), codec->factors.cr * 32);
  if (factors) return WEIR_OK;
  if (huffman && codec->scales > 0 && !weir_codes_shorten(plan))
    return weir_fail(WEIR_E_INVALID, "codec %s takes huffman by ag, sra and hier-sra alone",
                     codec->name);
  if (codec->wires == 0 || codec->wires >> plan->wire & 1) return WEIR_OK;
  list_names(weir_wire_name, WEIR_WIRE_COUNT, codec->wires, expected, sizeof expected);
  return weir_fail(WEIR_E_INVALID, "codec %s takes %s, not %s", codec->name, expected,
                   weir_wire_name(plan->wire));
}

/* A whole number from least to most? */
static bool whole(double x, unsigned least, unsigned most) {
  return x >= least && x <= most && x == (double)(unsigned)x;
}

/* Bits an element that the codec can be asked for? */
static bool good_bits(const weir_codec *codec, double bits) {
  return whole(bits, codec->bits.least, codec->bits.most) ||
         (codec->bits.halves > 0 && whole(bits + 0.5, codec->bits.halves + 1, codec->bits.most));
}

static weir_status check_ratio(const weir_codec *codec, double cr) {
  const unsigned least = codec->bits.least, most = codec->bits.most;
  /* Where a plan has a rank, the ratio is nothing that its author has seen. */
  const unsigned ranks = codec->at_once ? WEIR_BILATERAL_RANK_MAX : WEIR_POWERSGD_RANK_MAX;
  if (codec->low_rank && !whole(cr * WEIR_POWERSGD_RANK_MAX, 1, ranks))
    return weir_fail(WEIR_E_INVALID, "codec %s takes a whole rank from 1 to %u, not %g",
                     codec->name, ranks, cr * WEIR_POWERSGD_RANK_MAX);
  if (!(cr > 0.0 && cr <= 1.0)) /* also refuses NaN */
    return weir_fail(WEIR_E_INVALID, "compression ratio %g is outside (0, 1]", cr);
  if (codec->dense && cr != 1.0)
    return weir_fail(WEIR_E_INVALID, "codec %s keeps everything: its ratio is 1, not %g",
                     codec->name, cr);
  if (codec->encode != NULL && least == most && cr * 32 != least)
    return weir_fail(WEIR_E_INVALID, "codec %s takes %u bit%s an element: its ratio is %g, not %g",
                     codec->name, least, least > 1 ? "s" : "", least / 32.0, cr);
  if (codec->encode != NULL && !good_bits(codec, cr * 32))
    return weir_fail(WEIR_E_INVALID,
                     "codec %s takes %u to %u bits an element%s: its ratio is bits / 32, not %g",
                     codec->name, least, most, codec->bits.halves > 0 ? ", whole or half" : "", cr);
  return WEIR_OK;
}

/* On a grid of the norm, what is lost must be less than what there is (kernels/qsgd.c). */
static bool settles(const weir_codec *codec, const weir_plan *plan) {
  const double values = ldexp(0.5, (int)(plan->cr * 32)) - 1;
  return !codec->qsgd->l2 || 4 * values * values > ldexp(1, plan->bucket_log2);
}

static weir_status check_quantum(const weir_codec *codec, const weir_plan *plan) {
  const unsigned log2 = plan->bucket_log2;
  if (log2 == 0) return WEIR_OK;
  if (codec->qsgd == NULL)
    return weir_fail(WEIR_E_INVALID, "codec %s has no buckets of elements", codec->name);
  if (log2 < WEIR_BUCKET_LOG2_LEAST || log2 > WEIR_BUCKET_LOG2_MOST ||
      log2 == WEIR_BUCKET_LOG2_USUAL)
    return weir_fail(WEIR_E_INVALID, "codec %s: a bucket of 2^%u elements is none", codec->name,
                     log2);
  if (!settles(codec, plan))
    return weir_fail(WEIR_E_INVALID, "codec %s takes more than %g bits in buckets of %u",
                     codec->name, plan->cr * 32, 1U << log2);
  return WEIR_OK;
}

weir_status weir_plan_check(const weir_plan *plan) {
  if ((plan->buckets == 0) != (plan->layout == 0))
    return weir_fail(WEIR_E_INVALID, "plan of %u buckets names layout %08x", plan->buckets,
                     plan->layout);
  if (plan->codec >= WEIR_CODEC_COUNT || !weir_collective_legal(plan) ||
      plan->wire >= WEIR_WIRE_COUNT)
    return weir_fail(WEIR_E_INVALID, "plan names an unknown codec, collective or wire format");
  const weir_codec *codec = weir_codecs[plan->codec];
  weir_status status = check_scheme(codec, plan);
  if (status == WEIR_OK) status = check_wire(codec, plan);
  if (status == WEIR_OK) status = check_ratio(codec, plan->cr);
  return status == WEIR_OK ? check_quantum(codec, plan) : status;
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

static const char path_name[] = "path=";
enum { PATH_NAME = sizeof path_name - 1 };
static const char bucket_name[] = "bucket=";
enum { BUCKET_NAME = sizeof bucket_name - 1 };

/* "bucket=1024" */
static weir_status parse_bucket(const char *text, const char *field, weir_plan *plan) {
  for (uint8_t log2 = WEIR_BUCKET_LOG2_LEAST; log2 <= WEIR_BUCKET_LOG2_MOST; log2++) {
    char known[16];
    (void)snprintf(known, sizeof known, "%u", 1U << log2);
    if (strcmp(field + BUCKET_NAME, known) != 0) continue;
    plan->bucket_log2 = log2 == WEIR_BUCKET_LOG2_USUAL ? 0 : log2;
    return WEIR_OK;
  }
  return weir_fail(WEIR_E_PARSE,
                   "plan '%s': expected a bucket of 64 to 8192 elements, a power of two", text);
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
  if (plan == NULL) return weir_fail(WEIR_E_INVALID, "there is nowhere to put a plan: it is NULL");
  const size_t n = text ? split(text, field, length) : 0;
  if (n < 3)
    return weir_fail(WEIR_E_PARSE, "plan '%s' is not of the form CODEC:CR:COLLECTIVE[:WIRE]",
                     text ? text : "");
  weir_plan p = {0};
  if (!look_up(weir_codec_name, WEIR_CODEC_COUNT, field[0], length[0], &p.codec)) {
    char known[256];
    list_names(weir_codec_name, WEIR_CODEC_COUNT, UINT32_MAX, known, sizeof known);
    return weir_fail(WEIR_E_PARSE, "plan '%s': unknown codec (%s)", text, known);
  }
  const weir_codec *codec = weir_codecs[p.codec];
  char collective[2 * WEIR_COLLECTIVE_TEXT_MAX] = "";
  if (length[2] < sizeof collective) memcpy(collective, field[2], length[2]);
  if (strncmp(collective, path_name, PATH_NAME) == 0) {
    if (weir_path_parse(collective + PATH_NAME, &p) != WEIR_OK) return WEIR_E_PARSE;
  } else if (!weir_collective_parse(collective, codec->low_rank, &p))
    return weir_fail(
        WEIR_E_PARSE,
        "plan '%s': unknown collective (hitopk, path=TASKS, or ag, dense, art or compressed alone; "
        "ag- with bruck, ring or doubling; sra, hier-sra, compressed- with ring or "
        "tree; native; dense- or art- with ring, tree, halving, double-tree, torus, "
        "star, doubling, direct, native-ring, native-tree, hier-ring, hier-tree, hier-halving or "
        "hier-double-tree)",
        text);
  const bool bucket = n == 4 && !strncmp(field[3], bucket_name, BUCKET_NAME);
  if (bucket && parse_bucket(text, field[3], &p) != WEIR_OK) return WEIR_E_PARSE;
  if (n == 4 && !bucket && !look_up(weir_wire_name, WEIR_WIRE_COUNT, field[3], length[3], &p.wire))
    return weir_fail(
        WEIR_E_PARSE,
        "plan '%s': unknown wire format (u32-fp32, auto-fp32, auto-bf16, auto-fp16, huffman)",
        text);
  char *end = NULL;
  errno = 0;
  p.cr = weir_strtod(field[1], &end) / ratio_unit(codec);
  if (length[1] == 0 || end != field[1] + length[1] || errno == ERANGE)
    return weir_fail(WEIR_E_PARSE, "plan '%s': the compression ratio is not a number", text);
  const weir_status status = weir_plan_check(&p);
  if (status == WEIR_OK) *plan = p;
  return status;
}

void weir_plan_format(const weir_plan *plan, char text[WEIR_PLAN_TEXT_MAX]) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const char *wire = weir_wire_name(plan->wire);
  char collective[WEIR_COLLECTIVE_TEXT_MAX];
  weir_plan_collective(plan, collective);
  const locale_t before = weir_numerals_begin();
  (void)snprintf(text, WEIR_PLAN_TEXT_MAX, "%s:%.6g:%s%s%s", codec ? codec->name : "?",
                 plan->cr * (codec ? ratio_unit(codec) : 1), collective,
                 plan->wire == WEIR_WIRE_PAPER ? "" : ":",
                 plan->wire == WEIR_WIRE_PAPER ? "" : (wire ? wire : "?"));
  weir_numerals_end(before);
  size_t length = strlen(text);
  if (plan->bucket_log2 != 0)
    (void)snprintf(text + length, WEIR_PLAN_TEXT_MAX - length, ":%s%lu", bucket_name,
                   1UL << (plan->bucket_log2 & 31));
  length = strlen(text);
  if (plan->buckets != 0)
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
  if (plan->bucket_log2 != 0) h = weir_hash(h, &plan->bucket_log2, sizeof plan->bucket_log2);
  h = weir_hash(h, &plan->cr, sizeof plan->cr);
  h = weir_hash(h, &plan->buckets, sizeof plan->buckets);
  h = weir_hash(h, &plan->layout, sizeof plan->layout);
  return h ? h : 1;
}
