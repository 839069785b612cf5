/* All-reduces of encoded values, and HiTopKComm. */
#include <criterion/criterion.h>
#include <math.h>

#include "../sampled.h"
#include "collectives/compressed.h"
#include "collectives/patterns/patterns.h"
#include "ranks.h"
#include "said_headers.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
static const size_t lengths[] = {0, 1, 5, 1000, 20011};

typedef struct job {
  uint32_t row, codec;
  double cr;
  const char *layout;    /* machines, a letter a rank; NULL: each rank is one */
  weir_wire_format wire; /* HiTopKComm's, or huffman */
  bool peaked;           /* most elements far smaller than the largest */
  bool whole;            /* small whole numbers instead of drawn ones */
  size_t n;
  float *input, *x, *error; /* size * n; for HiTopKComm error is the residual */
  unsigned char *headers;
} job;

static float input_at(const job *j, int rank, size_t i) {
  return j->input[(size_t)rank * j->n + i];
}

static void draw_input(const job *j, int size) {
  weir_rng rng = weir_rng_of(j->n);
  for (size_t r = 0; r < (size_t)size; r++)
    for (size_t i = 0; i < j->n; i++)
      j->input[r * j->n + i] =
          j->whole ? (float)((int)(r * 7 + i * 3) % 16 - 8) : (float)weir_rng_uniform(&rng) - 0.5F;
  for (size_t i = 0; j->peaked && i < (size_t)size * j->n; i++)
    j->input[i] *= j->input[i] * j->input[i];
}

static bool selects(const job *j) { return weir_codec_find(j->codec)->select != NULL; }

static weir_status run_once(weir_comm *comm, const job *j, weir_codec_context *context, float *x,
                            float *error, float *sum, weir_headers *headers) {
  const weir_codec *codec = weir_codec_find(j->codec);
  if (selects(j))
    return weir_hitopk(comm, codec, context, j->cr, j->wire, x, NULL, j->n, sum, NULL, headers);
  weir_shortened shortened = {0};
  const weir_coder coder = {.codec = codec,
                            .context = context,
                            .cr = j->cr,
                            .seed = 99,
                            .huffman = j->wire == WEIR_WIRE_HUFFMAN,
                            .shortened = &shortened};
  const weir_status status = weir_compressed[j->row].run(comm, &coder, x, j->n, error, headers);
  if (status == WEIR_OK && j->peaked && coder.huffman && weir_comm_size(comm) > 1 &&
      !(shortened.sent < shortened.whole))
    return weir_fail(WEIR_E_INTERNAL, "%g bytes travelled as %g", shortened.whole, shortened.sent);
  return status;
}

static weir_status body(weir_transport *t, void *user) {
  const job *j = user;
  const size_t at = (size_t)t->rank * j->n;
  weir_comm *comm = NULL;
  weir_codec_context *context = NULL;
  weir_status status = weir_codec_context_create(&context);
  if (status == WEIR_OK) status = weir_comm_create(&comm, t, 20.0);
  if (status == WEIR_OK && j->layout)
    status = weir_comm_find_hosts(comm, (uint64_t)j->layout[t->rank]);
  unsigned char *block = j->headers + (size_t)t->rank * (size_t)t->size * HEADER;
  for (int pass = 0; status == WEIR_OK && pass < 2; pass++) { /* twice: the same bits again */
    FREED float *x = malloc(j->n * sizeof *x + 1), *sum = malloc(j->n * sizeof *x + 1);
    for (size_t i = 0; i < j->n; i++) x[i] = input_at(j, t->rank, i);
    if (j->n) memset(j->error + at, 0, j->n * sizeof(float));
    weir_headers headers = headers_of(block, t->rank, t->size);
    weir_comm_step(comm, 77, (uint64_t)pass);
    status = run_once(comm, j, context, x, j->error + at, sum, &headers);
    const float *result = selects(j) ? sum : x;
    if (status == WEIR_OK && pass == 1 && j->n && memcmp(result, j->x + at, j->n * sizeof *x) != 0)
      status = weir_fail(WEIR_E_INTERNAL, "the second run gave other bits");
    if (j->n) memcpy(j->x + at, result, j->n * sizeof *x);
    if (j->n && selects(j)) memcpy(j->error + at, x, j->n * sizeof *x);
  }
  weir_comm_free(comm);
  weir_codec_context_free(context);
  return status;
}

/* Nothing is lost: sum of inputs = result + sum of errors (or residuals). */
static void check_conservation(const job *j, int size) {
  for (size_t i = 0; i < j->n; i++) {
    double sum = 0, magnitude = 0, error = 0;
    for (int r = 0; r < size; r++) {
      const double e = (double)j->error[(size_t)r * j->n + i];
      sum += (double)input_at(j, r, i);
      error += e;
      magnitude += fabs((double)input_at(j, r, i)) + fabs(e);
      cr_assert_eq(memcmp(&j->x[i], &j->x[(size_t)r * j->n + i], sizeof(float)), 0,
                   "N %d element %zu differs on rank %d", size, i, r);
    }
    cr_assert_leq(fabs(sum - ((double)j->x[i] + error)), 2e-6 * magnitude * size + 1e-30,
                  "row %u codec %u N %d element %zu", j->row, j->codec, size, i);
  }
}

/* Runs it; the caller frees with done_case. */
static void run_case(enum group_kind kind, int size, job *j) {
  const size_t bytes = (size_t)size * j->n * sizeof(float),
               headers = (size_t)(size * size * HEADER);
  j->input = group_shared(bytes);
  j->x = group_shared(bytes);
  j->error = group_shared(bytes);
  j->headers = group_shared(headers);
  draw_input(j, size);
  ENDED group g = group_new(kind, size, body, j);
  group_run(&g);
  for (int r = 0; r < size; r++)
    cr_assert_eq(g.result[r].status, WEIR_OK, "row %u codec %u N %d n %zu rank %d: %s", j->row,
                 j->codec, size, j->n, r, g.result[r].message);
  check_conservation(j, size);
  for (int r = 0; r < size; r++)
    cr_assert_eq(header_missing(j->headers + r * size * HEADER, size), -1, "rank %d", r);
}

static void done_case(const job *j, int size) {
  const size_t bytes = (size_t)size * j->n * sizeof(float);
  (void)munmap(j->input, bytes ? bytes : 1);
  (void)munmap(j->x, bytes ? bytes : 1);
  (void)munmap(j->error, bytes ? bytes : 1);
  (void)munmap(j->headers, (size_t)(size * size * HEADER));
}

static const struct {
  uint32_t codec;
  double cr;
} coders[] = {{WEIR_CODEC_FP16, 0.5},       {WEIR_CODEC_QSGD, 0.25},
              {WEIR_CODEC_QSGD, 0.125},     {WEIR_CODEC_TERNGRAD, 0.0625},
              {WEIR_CODEC_ONEBIT, 0.03125}, {WEIR_CODEC_EFSIGNSGD, 0.03125}};

Test(compressed, conserves_and_agrees) {
  for (uint32_t row = 0; row < WEIR_COMPRESSED_COUNT; row++)
    for (size_t c = 0; c < COUNT(coders); c++)
      for (size_t s = 0; s < COUNT(sizes); s++)
        for (size_t l = 0; l < COUNT(lengths); l++) {
          if (!sampled(3)) continue;
          job j = {.row = row, .codec = coders[c].codec, .cr = coders[c].cr, .n = lengths[l]};
          run_case(GROUP_THREADS, sizes[s], &j);
          done_case(&j, sizes[s]);
        }
}

/* Of several blocks each, the last of any length. */
Test(compressed, long_messages_are_blocks) {
  static const size_t longer[] = {16384 * 3, 150001, 16384 * 6 + 1};
  for (uint32_t row = 0; row < WEIR_COMPRESSED_COUNT; row++)
    for (size_t c = 0; c < 2; c++) /* half precision, and 8 bits */
      for (size_t l = 0; l < COUNT(longer); l++) {
        if (!sampled(2)) continue;
        job j = {.row = row, .codec = coders[c].codec, .cr = coders[c].cr, .n = longer[l]};
        run_case(GROUP_THREADS, 3, &j);
        done_case(&j, 3);
      }
}

/* Entropy coding loses nothing: the same are sums and errors, to the bit, whether blocks become
 * shorter or are as long as before, and of machines, too. */
Test(compressed, huffman_changes_no_bit) {
  static const struct {
    uint32_t codec;
    unsigned bits;
  } coded[] = {{WEIR_CODEC_COMPANDED, 3}, {WEIR_CODEC_COMPANDED, 4}, {WEIR_CODEC_COMPANDED, 5},
               {WEIR_CODEC_QSGD, 2},      {WEIR_CODEC_QSGD, 7},      {WEIR_CODEC_MINIFLOAT, 6},
               {WEIR_CODEC_QSGD_L2, 8}};
  static const size_t longer[] = {0, 1, 7, 129, 1000, 20011, 150001};
  static const char *const layouts[] = {NULL, NULL, "abcd", "aabb", "aab"};
  for (size_t c = 0; c < COUNT(coded); c++)
    for (size_t l = 0; l < COUNT(longer); l++)
      for (size_t m = 0; m < COUNT(layouts); m++) {
        if (!sampled(3)) continue;
        const int size = layouts[m] != NULL ? (int)strlen(layouts[m]) : m == 0 ? 3 : 8;
        const uint32_t row = m >= 2                 ? WEIR_COMPRESSED_HIER_SRA
                             : (c + l + m) % 2 == 0 ? WEIR_COMPRESSED_SRA
                                                    : WEIR_COMPRESSED_ONE_SHOT;
        job plain = {.row = row,
                     .codec = coded[c].codec,
                     .cr = coded[c].bits / 32.0,
                     .n = longer[l],
                     .layout = layouts[m],
                     .peaked = longer[l] > 100000};
        job huffman = plain;
        huffman.wire = WEIR_WIRE_HUFFMAN;
        run_case(GROUP_THREADS, size, &plain);
        run_case(GROUP_THREADS, size, &huffman);
        const size_t bytes = (size_t)size * plain.n * sizeof(float);
        cr_assert_eq(memcmp(plain.x, huffman.x, bytes), 0, "codec %u n %zu", plain.codec, plain.n);
        cr_assert_eq(memcmp(plain.error, huffman.error, bytes), 0);
        done_case(&plain, size);
        done_case(&huffman, size);
      }
}

/* Whole numbers below 2048 in magnitude are exact in half precision, and so are their sums: then
 * nothing is lost and the result is the sum itself, whatever the scheme. */
Test(compressed, exact_where_the_encoding_is) {
  for (uint32_t row = 0; row < WEIR_COMPRESSED_COUNT; row++)
    for (int size = 2; size <= 13; size++) {
      if (!sampled(2)) continue;
      job j = {.row = row, .codec = WEIR_CODEC_FP16, .cr = 0.5, .whole = true, .n = 103};
      run_case(GROUP_THREADS, size, &j);
      for (size_t i = 0; i < j.n; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++) {
          sum += (double)input_at(&j, r, i);
          cr_assert_eq(j.error[(size_t)r * j.n + i], 0.0f);
        }
        cr_assert_eq((double)j.x[i], sum, "row %u N %d element %zu", row, size, i);
      }
      done_case(&j, size);
    }
}

/* Between machines, as many ranks on each or not: nothing is lost, and of whole numbers in half
 * precision nothing is left either. */
Test(compressed, machines) {
  static const char *const layouts[] = {"aabb", "abab", "aaabbb", "aabbcc", "aaa", "aab", "abc"};
  for (size_t m = 0; m < COUNT(layouts); m++)
    for (size_t c = 0; c < COUNT(coders); c++)
      for (size_t l = 0; l < COUNT(lengths); l++) {
        if (!sampled(3)) continue;
        const int size = (int)strlen(layouts[m]);
        job j = {.codec = coders[c].codec, .cr = coders[c].cr, .n = lengths[l]};
        j.row = WEIR_COMPRESSED_HIER_SRA;
        j.layout = layouts[m];
        j.whole = j.codec == WEIR_CODEC_FP16;
        run_case(GROUP_THREADS, size, &j);
        for (size_t i = 0; j.whole && i < (size_t)size * j.n; i++) cr_assert_eq(j.error[i], 0.0f);
        done_case(&j, size);
      }
}

/* One-shot encodes a value once, SRA twice whatever N, the tree as often as it is deep (CGX,
 * section 6.4: SRA has the lower error).  With 8 ranks and 4 bits the difference is far beyond
 * chance. */
static double lost(uint32_t row) {
  job j = {.row = row, .codec = WEIR_CODEC_QSGD, .cr = 0.125, .n = 20011};
  run_case(GROUP_THREADS, 8, &j);
  double square = 0;
  for (size_t i = 0; i < j.n; i++) {
    double sum = 0;
    for (int r = 0; r < 8; r++) sum += (double)input_at(&j, r, i);
    square += (sum - (double)j.x[i]) * (sum - (double)j.x[i]);
  }
  done_case(&j, 8);
  return square;
}
Test(compressed, fewer_encodings_lose_less) {
  cr_assert_lt(lost(WEIR_COMPRESSED_ONE_SHOT), lost(WEIR_COMPRESSED_SRA));
  cr_assert_lt(lost(WEIR_COMPRESSED_SRA), lost(WEIR_COMPRESSED_RING));
  cr_assert_lt(lost(WEIR_COMPRESSED_SRA), lost(WEIR_COMPRESSED_TREE));
}

Test(compressed, processes) {
  for (uint32_t row = 0; row < WEIR_COMPRESSED_COUNT; row++)
    for (int kind = GROUP_TCP; kind <= GROUP_SHM; kind++) {
      job j = {.row = row, .codec = WEIR_CODEC_QSGD, .cr = 0.125, .n = 300007};
      run_case((enum group_kind)kind, 5, &j);
      done_case(&j, 5);
    }
}

/* --- HiTopKComm ----------------------------------------------------------------------------- */

static int place_in(const char *layout, int rank) {
  int place = 0;
  for (int r = 0; r < rank; r++) place += layout[r] == layout[rank];
  return place;
}

/* By brute force: each machine's sum of a share, its k largest found by counting how many are
 * larger, added up over machines. */
static void expect_hitopk(const job *j, int inside, double *want) {
  const int size = (int)strlen(j->layout);
  for (size_t i = 0; i < j->n; i++) want[i] = 0;
  for (int lead = 0; lead < size; lead++) {
    if (place_in(j->layout, lead) != 0) continue;
    FREED double *total = calloc(j->n + 1, sizeof *total);
    for (int r = 0; r < size; r++)
      for (size_t i = 0; j->layout[r] == j->layout[lead] && i < j->n; i++)
        total[i] += (double)input_at(j, r, i);
    for (int p = 0; p < inside; p++) {
      const weir_chunk c = weir_ring_chunk(j->n, inside, p);
      const size_t asked = (size_t)(j->cr * (double)c.count), k = asked > 0 ? asked : 1;
      for (size_t i = c.begin; i < c.begin + c.count; i++) {
        size_t larger = 0;
        for (size_t o = c.begin; o < c.begin + c.count; o++)
          larger += fabs(total[o]) > fabs(total[i]);
        if (larger < k) want[i] += total[i];
      }
    }
  }
}

typedef struct machines {
  const char *layout;
  int inside;
} machines;

static void check_hitopk(const machines *m, double cr, size_t wire, size_t n) {
  const int size = (int)strlen(m->layout);
  job j = {.codec = WEIR_CODEC_TOPK, .cr = cr, .layout = m->layout, .n = n};
  j.wire = (weir_wire_format)wire;
  FREED double *want = calloc(n, sizeof *want);
  run_case(GROUP_THREADS, size, &j);
  expect_hitopk(&j, m->inside, want);
  for (size_t i = 0; i < n; i++)
    cr_assert_leq(fabs((double)j.x[i] - want[i]), 1e-5 * (fabs(want[i]) + 1),
                  "%s ratio %g n %zu element %zu: %g, not %g", j.layout, j.cr, n, i, (double)j.x[i],
                  want[i]);
  done_case(&j, size);
}

Test(hitopk, sums_what_each_machine_selects) {
  static const machines groups[] = {{"a", 1},      {"ab", 1},        {"aa", 2},
                                    {"aabb", 2},   {"abab", 2},      {"aaabbb", 3},
                                    {"aabbcc", 2}, {"abcabcabc", 3}, {"abcd", 1}};
  for (size_t l = 0; l < COUNT(groups); l++)
    for (size_t w = 0; w < 2; w++)
      for (size_t n = 1; n < 3000; n = 3 * n + 11) check_hitopk(&groups[l], 0.05, w, n);
}

/* So large a part that messages are longer than the gradient: the same sums, of small whole
 * numbers, with ratios up to one, where all of the sums of machines are sent, and of shares of
 * unequal length. */
Test(hitopk, sums_large_parts) {
  static const machines groups[] = {{"aabb", 2},   {"abab", 2},     {"aaabbb", 3},
                                    {"aabbcc", 2}, {"aaaabbbb", 4}, {"aabbccdd", 2}};
  static const double ratios[] = {0.15, 0.3, 0.5, 0.9, 1};
  for (size_t l = 0; l < COUNT(groups); l++)
    for (size_t c = 0; c < COUNT(ratios); c++)
      for (size_t n = 40; n < 1500; n = 3 * n + 7) check_hitopk(&groups[l], ratios[c], n % 2, n);
}

/* bf16 values: what rounding loses stays too; and uneven machines, each rank on its own. */
Test(hitopk, conserves) {
  const char *const some[] = {"aabb", "aab", "abbbc", "aaaa", "aabbccdd"};
  for (size_t l = 0; l < COUNT(some); l++)
    for (size_t k = 0; k < COUNT(lengths); k++) {
      job j = {.codec = WEIR_CODEC_TOPK,
               .cr = 0.1,
               .layout = some[l],
               .n = lengths[k],
               .wire = WEIR_WIRE_AUTO_BF16};
      run_case(GROUP_THREADS, (int)strlen(some[l]), &j);
      done_case(&j, (int)strlen(some[l]));
    }
  for (size_t k = 0; k < COUNT(lengths); k++) { /* most of it */
    job j = {.codec = WEIR_CODEC_TOPK,
             .cr = 0.7,
             .layout = "aabbcc",
             .n = lengths[k],
             .wire = WEIR_WIRE_AUTO_BF16};
    run_case(GROUP_THREADS, 6, &j);
    done_case(&j, 6);
  }
  job j = {.codec = WEIR_CODEC_MSTOPK,
           .cr = 0.01,
           .layout = "aabb",
           .n = 100003,
           .wire = WEIR_WIRE_AUTO_FP32};
  run_case(GROUP_TCP, 4, &j);
  done_case(&j, 4);
}

static weir_status refused_body(weir_transport *t, void *user) {
  (void)user;
  weir_comm *comm = NULL;
  weir_codec_context *context = NULL;
  weir_status status = weir_codec_context_create(&context);
  if (status == WEIR_OK) status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  float e[4] = {1, 2, 3, 4}, sum[4];
  status = weir_hitopk(comm, weir_codec_find(WEIR_CODEC_QSGD), context, 0.125, WEIR_WIRE_PAPER, e,
                       NULL, 4, sum, NULL, NULL);
  weir_comm_free(comm);
  weir_codec_context_free(context);
  return status == WEIR_E_INVALID ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "not refused");
}

/* A message that decodes to nothing on one rank ends the group on all, and names who sent it: rank
 * 1 encodes with 8 bits where the others expect 4. */
static weir_status differing_body(weir_transport *t, void *user) {
  const uint32_t row = *(const uint32_t *)user;
  weir_comm *comm = NULL;
  weir_codec_context *context = NULL;
  weir_status status = weir_codec_context_create(&context);
  if (status == WEIR_OK) status = weir_comm_create(&comm, t, 5.0);
  if (status != WEIR_OK) return status;
  const uint32_t codec = t->rank == 1 ? WEIR_CODEC_TERNGRAD : WEIR_CODEC_ONEBIT;
  const weir_coder coder = {.codec = weir_codec_find(codec),
                            .context = context,
                            .cr = t->rank == 1 ? 0.0625 : 0.03125,
                            .seed = 1};
  float x[300] = {1}, error[300] = {0};
  weir_comm_step(comm, 5, 1);
  status = weir_compressed[row].run(comm, &coder, x, 300, error, NULL);
  weir_comm_free(comm);
  weir_codec_context_free(context);
  return status;
}

Test(compressed, what_cannot_be_decoded_ends_the_group) {
  for (uint32_t row = 0; row < WEIR_COMPRESSED_COUNT; row++) {
    ENDED group g = group_new(GROUP_TCP, 3, differing_body, &row);
    group_run(&g);
    for (int r = 0; r < 3; r++)
      cr_assert_geq(g.result[r].status, WEIR_E_TIMEOUT, "row %u rank %d: %d %s", row, r,
                    (int)g.result[r].status, g.result[r].message);
  }
}

Test(hitopk, an_encoder_is_refused) { group_passes(GROUP_THREADS, 2, refused_body, NULL); }
