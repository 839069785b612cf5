#include "engine/memory.h"

#include <math.h>

#include "base/schemes.h"
#include "collectives/collective.h"
#include "collectives/compressed.h"
#include "collectives/path.h"
#include "collectives/patterns/patterns.h"
#include "kernels/codec.h"
#include "kernels/device.h"
#include "kernels/entropy.h"

/* --- lists and messages ----------------------------------------------------------------------- */

static size_t stride_of(size_t bytes) { return bytes / 16 * 16 + 32; }

weir_bucket_room weir_bucket_room_of(const weir_plan *plan, uint32_t scheme, weir_group_shape shape,
                                     size_t n, size_t kept) {
  const size_t ranks = (size_t)shape.ranks;
  const weir_codec *codec = weir_codec_find(plan->codec);
  const weir_wire_format format = (weir_wire_format)plan->wire;
  weir_bucket_room room = {0};
  if (scheme == WEIR_SCHEME_LOW_RANK) {
    /* bilateral: and two factors of twice as many columns. */
    room.values = kept < n && codec->at_once ? 3 * kept : kept;
    if (weir_sums_rounded(plan)) /* and a rank's own Q, where there is any */
      room.errors = kept == n ? kept : 2 * kept;
  } else if (scheme == WEIR_SCHEME_PATH) {
    const weir_path_room path = weir_path_room_of(plan, shape, n);
    room.indices = room.values = room.errors = path.kept;
    room.messages = 1;
    room.stride = path.bytes[0] + path.bytes[1];
  } else if (scheme == WEIR_SCHEME_GATHER && codec->encode != NULL) {
    room.messages = ranks;
    room.stride = stride_of(kept);
  } else if (scheme == WEIR_SCHEME_GATHER || scheme == WEIR_SCHEME_SHARED) {
    const bool gathers = scheme == WEIR_SCHEME_GATHER;
    room.indices = kept;
    /* VAR's root is found there. */
    room.values = codec->by_variance && kept < ranks ? ranks : kept;
    room.errors = gathers && format < WEIR_WIRE_AUTO_BF16 ? 0 : kept;
    room.messages = gathers ? ranks : 1;
    room.stride = stride_of(weir_wire_bound(n, kept, format));
  }
  return room;
}

/* Where a list alone is sent, the part of its place that is for values stays empty. */
static double room_bytes(const weir_bucket_room *room, const weir_plan *plan, uint32_t scheme) {
  const double width = plan->wire >= WEIR_WIRE_AUTO_BF16 ? 2.0 : 4.0;
  const double empty = scheme == WEIR_SCHEME_SHARED ? width * (double)room->indices : 0.0;
  return 4.0 * ((double)room->indices + (double)room->values + (double)room->errors) +
         (double)room->messages * (double)room->stride - empty;
}

/* --- rooms on devices ------------------------------------------------------------------------- */

/* Of the messages that the device makes itself. */
static size_t sum_stays(const weir_plan *plan, weir_group_shape shape, size_t n) {
  const weir_plan usual = weir_plan_usual(plan);
  const weir_codec *codec = weir_codec_find(plan->codec);
  const weir_compressed_row *row = weir_compressed_of(&usual);
  const bool levels = shape.hosts < shape.ranks && shape.ranks % shape.hosts == 0;
  const weir_coder coder = {.codec = codec, .cr = plan->cr, .bucket_log2 = plan->bucket_log2};
  if (row == NULL || codec->by_tensor || (row->id == WEIR_COMPRESSED_HIER_SRA && levels)) return 0;
  return weir_coder_stays(&coder, row->id, n, shape.ranks);
}

size_t weir_room_stride(size_t bytes) {
  return (bytes + WEIR_ROOM_EDGE - 1) / WEIR_ROOM_EDGE * WEIR_ROOM_EDGE;
}

/* Inside of machines gathered messages alone stay, and a rank's room has its own and those that it
 * has taken from other machines. */
size_t weir_bucket_stays(const weir_plan *plan, uint32_t scheme, weir_group_shape shape,
                         bool inside, size_t n, size_t kept) {
  const bool gathers = scheme == WEIR_SCHEME_GATHER;
  const bool lists = scheme == WEIR_SCHEME_SHARED && weir_codec_find(plan->codec)->draw == NULL;
  if (shape.ranks < 2 || (inside && !gathers)) return 0;
  const size_t each = gathers || lists ? weir_bucket_room_of(plan, scheme, shape, n, kept).stride
                      : scheme == WEIR_SCHEME_COMPRESSED ? sum_stays(plan, shape, n)
                                                         : 0;
  return (inside ? (size_t)shape.hosts : 1) * weir_room_stride(each);
}

double weir_room_takes(size_t half) { return half > 0 ? (double)weir_room_memory(2 * half) : 0.0; }

/* --- what is worked in ------------------------------------------------------------------------ */

static bool has_levels(const weir_memory_form *form) {
  return form->hosts < form->ranks && form->ranks % form->hosts == 0;
}

/* Bytes that an all-reduce of n floats has come in; rounded values come in elsewhere. */
static double allreduce_scratch(const weir_allreduce *row, int ranks, int hosts, double n) {
  const int core = weir_halving_place(0, ranks).core;
  switch (row->id) {
    case WEIR_ALLREDUCE_RING: return 4.0 * ceil(n / ranks);
    case WEIR_ALLREDUCE_TREE:
    case WEIR_ALLREDUCE_STAR: return 4.0 * n;
    case WEIR_ALLREDUCE_HALVING: return 4.0 * (core == ranks ? ceil(n / 2) : n);
    case WEIR_ALLREDUCE_TORUS: return 4.0 * ceil(n * weir_torus_rows(ranks, hosts) / ranks);
    case WEIR_ALLREDUCE_DOUBLE_TREE:
      return 16.0 * ceil(n / 2 / weir_double_tree_chunks((size_t)(4.0 * n)));
    default: return 0.0;
  }
}

/* Inside of machines a share comes in, between them an all-reduce of it; where machines differ all
 * does, on one rank of each. */
static double levels_scratch(const weir_sum *sum, const weir_memory_form *form, double n) {
  const weir_allreduce *row = &weir_allreduces[sum->choice.between];
  if (sum->row != NULL) return allreduce_scratch(row, form->ranks, form->hosts, n);
  const bool even = form->leaders == 0 && form->ranks % form->hosts == 0;
  const int hosts = form->leaders > 0 ? form->leaders : form->hosts;
  const double inside = even ? (double)form->ranks / form->hosts : 1.0;
  return (inside > 1.0 || !even ? 4.0 * ceil(n / inside) : 0.0) +
         allreduce_scratch(row, hosts, hosts, ceil(n / inside));
}

static double hitopk_scratch(const weir_plan *plan, const weir_memory_form *form, double n) {
  const double inside = (double)form->ranks / form->hosts, share = ceil(n / inside);
  const double kept = fmax(1.0, floor(plan->cr * share));
  const double message =
      (double)weir_wire_bound((size_t)share, (size_t)kept, (weir_wire_format)plan->wire);
  return 12.0 * kept + 4.0 * share + form->hosts * (message + inside * (message + 8.0));
}

/* What sums of floats come in, of each communicator. */
static double path_scratch(const weir_plan *plan, const weir_memory_form *form, size_t n) {
  const weir_group_shape shape = {form->ranks, form->hosts, false, 0, 0};
  double bytes = 0.0;
  weir_path path;
  if (!weir_path_of(plan, &path)) return 0.0;
  weir_path_held held = weir_path_begins(shape, n);
  for (size_t i = 0; i < path.count; i++) {
    const unsigned task = path.step[i].task;
    const int ranks = weir_path_group(shape, (weir_site)path.step[i].place);
    if ((task == WEIR_TASK_COMM || task == WEIR_TASK_COMM1) && ranks > 1)
      bytes += 4.0 * ceil((double)held.elements / (path.step[i].routine != 0 ? 1 : ranks));
    weir_path_advance(&path, i, shape, &held);
  }
  return bytes;
}

static double shortening(const weir_plan *plan) {
  return plan->wire == WEIR_WIRE_HUFFMAN ? (double)weir_entropy_room() : 0.0;
}

/* Low rank's factors, of which every rank has all messages of a sum, the first or the second. */
static double messages_scratch(const weir_plan *plan, const weir_memory_form *form, size_t kept) {
  const weir_coder coder = weir_factor_coder(plan);
  if (!weir_compressed_to_all(plan)) return 0.0;
  return form->ranks * (double)weir_coder_bound(&coder, kept);
}

static double collective_scratch(const weir_plan *plan, uint32_t scheme,
                                 const weir_memory_form *form, size_t n, size_t kept) {
  const weir_plan named = weir_plan_usual(plan);
  const double summed = scheme == WEIR_SCHEME_DENSE ? (double)n : (double)kept;
  weir_sum sum;
  if (form->ranks < 2) return 0.0;
  if (scheme == WEIR_SCHEME_HITOPK) return hitopk_scratch(plan, form, (double)n);
  if (scheme == WEIR_SCHEME_PATH) return path_scratch(plan, form, n);
  if (scheme == WEIR_SCHEME_COMPRESSED)
    return shortening(plan) + (plan->inside != 0 && has_levels(form)
                                   ? 4.0 * ceil((double)n * form->hosts / form->ranks)
                                   : 0.0);
  if (scheme == WEIR_SCHEME_GATHER || weir_sums_rounded(plan) || !weir_sum_of(&named, &sum))
    return shortening(plan) + messages_scratch(plan, form, kept);
  return levels_scratch(&sum, form, summed);
}

/* Candidates lie where the sum will be, or a path's messages, as far as they have room there;
 * drawing and decoding mark an element by a bit. */
static double codec_scratch(const weir_codec *codec, const weir_memory_form *form, size_t n,
                            size_t kept, double lent) {
  const double list = (double)weir_select_room(codec, n, kept, form->threads);
  const bool marks = codec->select != NULL || codec->draw != NULL;
  return (list > lent ? list : 0.0) + (marks ? (double)n / 8 : 0.0);
}

/* --- a plan ----------------------------------------------------------------------------------- */

/* As weir_scheme_find. */
static uint32_t scheme_of(const weir_plan *plan, const weir_memory_form *form, size_t n,
                          size_t kept) {
  const bool levels = form->hosts > 1 && has_levels(form);
  if (plan->scheme == WEIR_SCHEME_LOW_RANK && kept == n && !weir_factors_encoded(plan))
    return WEIR_SCHEME_DENSE;
  return plan->scheme == WEIR_SCHEME_HITOPK && !levels ? WEIR_SCHEME_GATHER : plan->scheme;
}

/* Residual and e unless all of e is summed as it is; the sum, or of what is published from lists
 * the candidates that lie there. */
static double buffers(const weir_plan *plan, uint32_t scheme, const weir_memory_form *form,
                      size_t n, size_t kept) {
  const weir_codec *codec = weir_codec_find(plan->codec);
  const bool thin = scheme == WEIR_SCHEME_LOW_RANK;
  const bool leaves = scheme != WEIR_SCHEME_DENSE || weir_codecs[plan->codec]->rounds;
  const double gradient = 4.0 * (double)n;
  /* Without error feedback there is no residual, and what a dense sum's rounding loses has no
   * place. */
  const bool residual = leaves && !form->without_feedback;
  const bool fed = residual || (leaves && scheme != WEIR_SCHEME_DENSE);
  double bytes = (residual ? gradient : 0.0) + (fed ? gradient : 0.0);
  if (scheme == WEIR_SCHEME_SHARED)
    bytes += fmin(gradient, (double)weir_select_room(codec, n, kept, form->threads));
  else if (!thin)
    bytes += gradient;
  if (form->momentum) bytes += 2.0 * gradient;
  /* What elements usually are, a half of a float each. */
  if (codec->whitened || form->follows) bytes += (form->trials ? 1.0 : 0.5) * gradient;
  if (form->trials) bytes += (form->momentum ? 2.0 : 1.0) * gradient;
  return bytes;
}

weir_memory_form weir_memory_form_of(weir_group_shape shape, int most) {
  const int ranks = most > shape.ranks ? most : shape.ranks;
  const bool uneven = shape.largest > 0 && !weir_shape_even(shape);
  return (weir_memory_form){.ranks = ranks,
                            .hosts = uneven || shape.hosts >= shape.ranks ? ranks : shape.hosts,
                            .leaders = uneven ? shape.hosts : 0};
}

double weir_plan_memory(const weir_plan *plan, const weir_memory_form *form, size_t elements,
                        size_t kept) {
  const uint32_t scheme = scheme_of(plan, form, elements, kept);
  const weir_group_shape shape = {form->ranks, form->hosts, false, 0, 0};
  const weir_bucket_room room = weir_bucket_room_of(plan, scheme, shape, elements, kept);
  return buffers(plan, scheme, form, elements, kept) + room_bytes(&room, plan, scheme) +
         collective_scratch(plan, scheme, form, elements, kept) +
         codec_scratch(
             weir_codec_find(plan->codec), form, elements, kept,
             scheme == WEIR_SCHEME_PATH ? (double)room.stride / 2 : 4.0 * (double)elements);
}

double weir_plan_room(const weir_plan *plan, const weir_memory_form *form, size_t elements,
                      size_t kept) {
  const weir_group_shape shape = {form->ranks, form->hosts, true, 0, 0};
  return weir_room_takes(weir_bucket_stays(plan, scheme_of(plan, form, elements, kept), shape,
                                           form->rooms_inside, elements, kept));
}
