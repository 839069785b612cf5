/* What `weir bench kernels` times. */
#include <string.h>

#include "base/base.h"
#include "kernels.h"
#include "kernels/cpu/cpu.h"
#include "kernels/entropy.h"
#include "kernels/powersgd.h"
#include "lab/models/product.h"

/* Keeps the compiler from finding out that nobody wants a result. */
static volatile double sink;

/* --- the yardsticks ------------------------------------------------------------------------- */

static weir_status do_read(kernel_bench *b, const kernel_row *row) {
  (void)row;
  sink = (double)weir_cpu()->count(b->e, b->n, 1);
  return WEIR_OK;
}

static weir_status do_copy(kernel_bench *b, const kernel_row *row) {
  (void)row;
  memcpy(b->value, b->e, b->n * sizeof *b->e);
  return WEIR_OK;
}

/* Three floats in, two out. */
static weir_status do_move20(kernel_bench *b, const kernel_row *row) {
  (void)row;
  const float *const g = b->g, *const r = b->r, *const e = b->e;
  float *restrict const value = b->value, *restrict const sum = b->sum;
  for (gsize i = 0; i < b->n; i++) {
    value[i] = g[i] + r[i];
    sum[i] = g[i] - e[i];
  }
  return WEIR_OK;
}

/* --- passes over a gradient ----------------------------------------------------------------- */

static weir_status do_accumulate(kernel_bench *b, const kernel_row *row) {
  (void)row;
  weir_moments moments = {0};
  weir_ef_accumulate(b->g, b->r, b->e, b->n, &moments);
  sink = moments.sum_square;
  return WEIR_OK;
}

/* As a step does it: what the search will be after is listed while e is made. */
static weir_status do_fused(kernel_bench *b, const kernel_row *row) {
  const gsize offset[2] = {0, b->n};
  const weir_layout layout = {1, offset};
  const float *const g = b->g;
  weir_moments moments = {0};
  weir_status status =
      weir_ahead_begin(b->context, &(weir_ahead_of){.g = &g, .r = b->r}, &layout, b->e, row->cr);
  if (status != WEIR_OK) return status;
  weir_ahead_feed(b->context, 0, b->g, b->r, b->e, b->n, &moments);
  status = weir_codecs[WEIR_CODEC_TOPK]->select(b->context, b->e, &layout, row->cr, b->index, b->n,
                                                &b->k);
  weir_scatter_zero(b->sum, b->index, b->k); /* as the residual is updated */
  return status;
}

static weir_status do_gain(kernel_bench *b, const kernel_row *row) {
  weir_gain_curve_fill(b->curve, b->e, b->n, 1);
  sink = weir_gain_curve_gain(b->curve, row->cr);
  return WEIR_OK;
}

/* As a step looks at it. */
static weir_status do_gain_sampled(kernel_bench *b, const kernel_row *row) {
  weir_gain_curve_fill(b->curve, b->e, b->n, weir_gain_curve_stride(b->n));
  sink = weir_gain_curve_gain(b->curve, row->cr);
  return WEIR_OK;
}

static weir_status do_select(kernel_bench *b, const kernel_row *row) {
  const gsize offset[2] = {0, b->n};
  const weir_layout layout = {1, offset};
  const weir_codec *codec = weir_codec_find(row->codec);
  if (codec->draw) return codec->draw(b->context, &layout, row->cr, 1, b->index, b->n, &b->k);
  return codec->select(b->context, b->e, &layout, row->cr, b->index, b->n, &b->k);
}

/* --- messages ------------------------------------------------------------------------------- */

static weir_status do_wire_encode(kernel_bench *b, const kernel_row *row) {
  weir_gather(b->e, b->index, b->k, b->value);
  return weir_wire_encode(b->n, b->index, b->value, b->k, row->format, b->message, b->room,
                          &b->bytes, NULL);
}

static weir_status do_wire_decode(kernel_bench *b, const kernel_row *row) {
  (void)row;
  gsize k = 0;
  return weir_wire_decode(b->message, b->bytes, b->n, b->index, b->value, b->n, &k);
}

static weir_status do_wire_decode_dense(kernel_bench *b, const kernel_row *row) {
  (void)row;
  return weir_wire_decode_dense(b->context, b->message, b->bytes, b->n, b->value);
}

static weir_status do_wire_decode_add(kernel_bench *b, const kernel_row *row) {
  (void)row;
  return weir_wire_decode_add(b->context, b->message, b->bytes, b->n, b->sum);
}

/* A pass that reads and writes back what decoding and adding touch, all of the gradient. */
static weir_status do_scale(kernel_bench *b, const kernel_row *row) {
  (void)row;
  weir_scale(b->sum, b->n, 0.5f);
  return WEIR_OK;
}

static weir_status do_encode(kernel_bench *b, const kernel_row *row) {
  const gsize offset[2] = {0, b->n};
  const weir_layout layout = {1, offset};
  b->k = b->n;
  return weir_codec_find(row->codec)
      ->encode(b->context, b->e, &layout, row->cr, 1, b->message, b->room, &b->bytes);
}

static weir_status decode(kernel_bench *b, const kernel_row *row, float *to, bool add) {
  const gsize offset[2] = {0, b->n};
  const weir_layout layout = {1, offset};
  return weir_codec_find(row->codec)->decode(b->context, b->message, b->bytes, &layout, to, add);
}

static weir_status do_decode(kernel_bench *b, const kernel_row *row) {
  return decode(b, row, b->value, false);
}

static weir_status do_decode_add(kernel_bench *b, const kernel_row *row) {
  return decode(b, row, b->sum, true);
}

/* Codes by how often they occur, and back, in the message that was encoded last. */
static weir_status do_shorten(kernel_bench *b, const kernel_row *row) {
  b->whole = b->bytes;
  b->bytes = weir_entropy_shorten(weir_codec_find(row->codec), b->message, b->bytes, b->coding);
  return WEIR_OK;
}

static weir_status do_restore(kernel_bench *b, const kernel_row *row) {
  const bool good = weir_entropy_restore(weir_codec_find(row->codec), b->message, b->bytes, b->n,
                                         b->whole, b->coding) == b->whole;
  b->bytes = b->whole;
  return good ? WEIR_OK : weir_fail(WEIR_E_INTERNAL, "a message could not be restored");
}

/* --- low rank: M is all of e, Q the front of g ----------------------------------------------- */

typedef struct thin {
  gsize rows, columns, rank;
} thin;

static thin thin_of(const kernel_bench *b, const kernel_row *row) {
  thin t = {.rows = 1, .rank = weir_powersgd_rank(row->cr)};
  while (4 * t.rows * t.rows <= b->n) t.rows *= 2;
  t.columns = b->n / t.rows;
  return t;
}

static weir_status do_project(kernel_bench *b, const kernel_row *row) {
  const thin t = thin_of(b, row);
  weir_powersgd_project(b->e, t.rows, t.columns, b->g, t.columns, t.rank, b->value);
  return WEIR_OK;
}

static weir_status do_project_back(kernel_bench *b, const kernel_row *row) {
  const thin t = thin_of(b, row);
  weir_powersgd_project_back(b->e, t.rows, t.columns, b->r, t.rank, b->value);
  return WEIR_OK;
}

static weir_status do_expand(kernel_bench *b, const kernel_row *row) {
  const thin t = thin_of(b, row);
  weir_powersgd_expand(b->r, t.rows, b->g, t.columns, t.rank, b->sum, true);
  return WEIR_OK;
}

/* The same by oneDNN.  A factor's columns lie behind one another, so that it is stored as its
 * transpose. */
static weir_status multiply(weir_product product) {
  weir_pace_of pace = {0};
  weir_product_threads(1);
  return weir_product_run(&pace, &product);
}

static weir_status peer_project(kernel_bench *b, const kernel_row *row) {
  const thin t = thin_of(b, row);
  return multiply((weir_product){.m = t.rank,
                                 .n = t.rows,
                                 .k = t.columns,
                                 .a = {b->g, t.columns, false},
                                 .b = {b->e, t.columns, true},
                                 .c = b->value});
}

static weir_status peer_project_back(kernel_bench *b, const kernel_row *row) {
  const thin t = thin_of(b, row);
  return multiply((weir_product){.m = t.rank,
                                 .n = t.columns,
                                 .k = t.rows,
                                 .a = {b->r, t.rows, false},
                                 .b = {b->e, t.columns, false},
                                 .c = b->value});
}

static weir_status peer_expand(kernel_bench *b, const kernel_row *row) {
  const thin t = thin_of(b, row);
  return multiply((weir_product){.m = t.rows,
                                 .n = t.columns,
                                 .k = t.rank,
                                 .a = {b->r, t.rows, true},
                                 .b = {b->g, t.columns, false},
                                 .c = b->sum,
                                 .alpha = -1,
                                 .beta = 1});
}

/* --- the list ------------------------------------------------------------------------------- */

static void add(GArray *rows, kernel_row row, const char *format, ...) G_GNUC_PRINTF(3, 4);
static void add(GArray *rows, kernel_row row, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)g_vsnprintf(row.name, sizeof row.name, format, arguments);
  va_end(arguments);
  g_array_append_val(rows, row);
}

static void add_selection(GArray *rows, kernel_data data, guint32 codec, double cr) {
  add(rows,
      (kernel_row){.data = data, .work = do_select, .beside = do_read, .codec = codec, .cr = cr},
      "%s cr %g", weir_codec_name(codec), cr);
}

static void add_wire(GArray *rows, kernel_data data, double cr) {
  for (weir_wire_format format = WEIR_WIRE_PAPER; format < WEIR_WIRE_LISTS; format++) {
    kernel_row row = {.data = data, .work = do_wire_encode, .format = format, .cr = cr};
    const char *const name = weir_wire_name(format);
    add(rows, row, "encode %s cr %g", name, cr);
    row.work = do_wire_decode;
    add(rows, row, "decode %s cr %g", name, cr);
    row.work = do_wire_decode_dense;
    row.beside = do_read;
    add(rows, row, "decode dense %s cr %g", name, cr);
    row.work = do_wire_decode_add;
    row.beside = do_scale;
    add(rows, row, "decode add %s cr %g", name, cr);
  }
}

/* Every encoder at every number of bits that it takes. */
static void add_encoders(GArray *rows, kernel_data data) {
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++)
    for (unsigned bits = 1; weir_codec_find(codec)->encode && bits <= 16; bits++) {
      const weir_plan plan = {.codec = codec, .scheme = WEIR_SCHEME_GATHER, .cr = bits / 32.0};
      const gboolean coded = weir_codec_find(codec)->scales > 0;
      if (weir_plan_check(&plan) != WEIR_OK || (bits > 4 && bits % 8 != 0 && bits != 5)) continue;
      kernel_row row = {
          .data = data, .work = do_encode, .beside = do_copy, .codec = codec, .cr = plan.cr};
      add(rows, row, "%s %u bits encode", weir_codec_name(codec), bits);
      row.work = do_decode;
      add(rows, row, "%s %u bits decode", weir_codec_name(codec), bits);
      row.work = do_decode_add;
      add(rows, row, "%s %u bits decode add", weir_codec_name(codec), bits);
      row.work = do_shorten;
      if (coded) add(rows, row, "%s %u bits shorten", weir_codec_name(codec), bits);
      row.work = do_restore;
      if (coded) add(rows, row, "%s %u bits restore", weir_codec_name(codec), bits);
    }
}

static void add_low_rank(GArray *rows, kernel_data data) {
  static const unsigned ranks[] = {4, 16};
  for (gsize i = 0; i < G_N_ELEMENTS(ranks); i++) {
    kernel_row row = {.data = data,
                      .work = do_project,
                      .beside = peer_project,
                      .cr = (double)ranks[i] / WEIR_POWERSGD_RANK_MAX};
    add(rows, row, "low rank %u, P = M Q", ranks[i]);
    row.work = do_project_back;
    row.beside = peer_project_back;
    add(rows, row, "low rank %u, Q = M^T P", ranks[i]);
    row.work = do_expand;
    row.beside = peer_expand;
    add(rows, row, "low rank %u, M -= P Q^T", ranks[i]);
  }
}

/* The selections that go with an all-gather last: messages carry the indices found last. */
static void add_ratio(GArray *rows, kernel_data data, double cr) {
  add(rows, (kernel_row){.data = data, .work = do_fused, .beside = do_move20, .cr = cr},
      "error feedback + topk cr %g", cr);
  add_selection(rows, data, WEIR_CODEC_MSTOPK, cr);
  add_selection(rows, data, WEIR_CODEC_TOPK, cr);
  if (data == DATA_NORMAL) add_wire(rows, data, cr);
}

void weir_kernel_rows(GArray *rows, kernel_data data, double cr) {
  static const struct {
    const char *name;
    weir_status (*work)(kernel_bench *b, const kernel_row *row);
    gboolean once;
  } passes[] = {{"read", do_read, FALSE},          {"error feedback", do_accumulate, FALSE},
                {"gain curve", do_gain, FALSE},    {"gain curve, sampled", do_gain_sampled, FALSE},
                {"copy", do_copy, FALSE},          {"move 20 bytes", do_move20, TRUE},
                {"scale in place", do_scale, TRUE}};
  for (gsize i = 0; i < G_N_ELEMENTS(passes); i++)
    if (data == DATA_NORMAL || !passes[i].once)
      add(rows, (kernel_row){.data = data, .work = passes[i].work, .cr = cr}, "%s", passes[i].name);
  add_ratio(rows, data, cr);
  if (data != DATA_NORMAL) return;
  static const double others[] = {0.1, 0.01, 0.001};
  for (gsize c = 0; c < G_N_ELEMENTS(others); c++)
    if (others[c] < cr || others[c] > cr) add_ratio(rows, data, others[c]);
  for (guint32 codec = 0; codec < WEIR_CODEC_COUNT; codec++)
    if ((weir_codec_find(codec)->select || weir_codec_find(codec)->draw) &&
        codec != WEIR_CODEC_TOPK && codec != WEIR_CODEC_MSTOPK)
      add_selection(rows, data, codec, cr);
  add_encoders(rows, data);
  add_low_rank(rows, data);
}

/* --- timing --------------------------------------------------------------------------------- */

double weir_kernel_median(double *ms, int count) {
  weir_sort(ms, (size_t)count);
  return ms[count / 2];
}

static weir_status timed(kernel_bench *b, const kernel_row *row,
                         weir_status (*work)(kernel_bench *b, const kernel_row *row), double *ms) {
  const double start = weir_thread_cpu_s();
  const weir_status status = work(b, row);
  *ms = 1e3 * (weir_thread_cpu_s() - start);
  return status;
}

weir_status weir_kernel_measure(kernel_bench *b, GArray *rows) {
  for (int round = -1; round < b->rounds; round++)
    for (guint i = 0; i < rows->len; i++) {
      kernel_row *row = &g_array_index(rows, kernel_row, i);
      double beside = 0.0, ms = 0.0;
      weir_status status = row->beside ? timed(b, row, row->beside, &beside) : WEIR_OK;
      if (status == WEIR_OK) status = timed(b, row, row->work, &ms);
      if (status != WEIR_OK) return status;
      if (round >= 0) {
        row->ms[round] = ms;
        row->beside_ms[round] = beside;
      }
      if (row->work == do_wire_encode || row->work == do_encode || row->work == do_shorten)
        row->bytes_each = (double)b->bytes / (double)b->k;
    }
  for (guint i = 0; i < rows->len; i++) {
    kernel_row *row = &g_array_index(rows, kernel_row, i);
    row->median = weir_kernel_median(row->ms, b->rounds);
    row->least = row->ms[0];
    if (row->beside) row->ratio = row->median / weir_kernel_median(row->beside_ms, b->rounds);
  }
  return WEIR_OK;
}
