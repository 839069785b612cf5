/* AG: what each rank sends, kept elements or its encoded gradient, all-gathered and added up in
 * rank order. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

static unsigned char *block(const weir_group *group, int rank) {
  return group->blocks + (size_t)rank * group->stride;
}

/* --- what this rank sends --------------------------------------------------------------------- */

/* Draws differ from rank to rank, step to step and group to group, follow from these alone, and are
 * drawn again alike after a trial. */
uint64_t weir_ag_seed(const weir_group *group) {
  const uint64_t words[3] = {group->engine->turn, (uint64_t)group->engine->rank, group->number};
  return weir_hash(WEIR_HASH_INIT, words, (group->number > 0 ? 3 : 2) * sizeof *words);
}

/* Only this rank's own loss, e - decode(its own message), stays behind. */
weir_status weir_ag_take_off(weir_group *group) {
  if (group->pieces) return weir_pieces_take_off(group);
  const weir_engine *engine = group->engine;
  const weir_status status =
      weir_codec_find(group->plan.codec)
          ->decode(group->context, block(group, engine->rank), group->block_bytes[engine->rank],
                   &group->layout, group->fed, WEIR_DECODE_SUBTRACT);
  if (status != WEIR_OK) return status;
  const double lost = weir_sum_square(group->fed, group->n);
  group->passage.kept_square = fmax(group->passage.moments.sum_square - lost, 0);
  return WEIR_OK;
}

/* With momentum e is wanted once more (velocity.h). */
static weir_status encode(weir_group *group, const weir_codec *codec) {
  const int rank = group->engine->rank;
  const weir_status status =
      codec->encode(group->context, group->fed, &group->layout, group->plan.cr, weir_ag_seed(group),
                    block(group, rank), group->stride, &group->block_bytes[rank]);
  if (status != WEIR_OK || group->velocity == WEIR_VELOCITY_TOLD) return status;
  return weir_ag_take_off(group);
}

/* An encoder without scales does it piece by piece. */
static weir_status prepare_pieces(weir_group *group, const weir_codec *codec) {
  if (codec->encode == NULL) return weir_pieces_select(group);
  group->own_end = 0;
  if (codec->scales == 0) return WEIR_OK;
  unsigned char *const whole = weir_pieces_whole(group);
  size_t bytes;
  const weir_status status =
      codec->encode(group->context, group->fed, &group->layout, group->plan.cr, weir_ag_seed(group),
                    whole, group->kept, &bytes);
  if (status != WEIR_OK) return status;
  if (group->velocity != WEIR_VELOCITY_TOLD)
    return codec->decode(group->context, whole, bytes, &group->layout, group->fed,
                         WEIR_DECODE_SUBTRACT);
  weir_pieces_keep_whole(group, bytes);
  return WEIR_OK;
}

/* What 16 bits lose of a value stays behind. */
static weir_status select_and_encode(weir_group *group) {
  const int rank = group->engine->rank;
  size_t k = 0;
  weir_status status = weir_group_select(group, &k);
  if (status != WEIR_OK) return status;
  weir_gather(group->fed, group->index, k, group->value);
  group->passage.kept_square = weir_sum_square(group->value, k);
  if (group->error != NULL) memset(group->error, 0, k * sizeof(float));
  status =
      weir_wire_encode(group->n, group->index, group->value, k, (weir_wire_format)group->plan.wire,
                       block(group, rank), group->stride, &group->block_bytes[rank], group->error);
  if (status != WEIR_OK) return status;
  weir_velocity_cut(group, 0, group->index, k);
  weir_scatter_zero(group->fed, group->index, k);
  if (group->error != NULL) weir_scatter_add(group->fed, group->index, group->error, k);
  return WEIR_OK;
}

weir_status weir_prepare_ag(weir_group *group) {
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  if (group->merged) weir_merged_open(group);
  const weir_status status = group->pieces           ? prepare_pieces(group, codec)
                             : codec->encode != NULL ? encode(group, codec)
                                                     : select_and_encode(group);
  if (status == WEIR_OK) group->passage.next = group->fed;
  return status;
}

/* --- what all have sent ----------------------------------------------------------------------- */

/* The sum over ranks.  Our own message too is decoded from its bytes: every rank adds the same
 * values. */
static weir_status add_up(weir_group *group, float *sum) {
  weir_engine *engine = group->engine;
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  for (int r = 0; r < engine->size; r++) {
    const unsigned char *message = block(group, r);
    const size_t bytes = group->block_bytes[r];
    weir_status status;
    if (codec->encode != NULL)
      status = codec->decode(group->context, message, bytes, &group->layout, sum,
                             r == 0 ? WEIR_DECODE_STORE : WEIR_DECODE_ADD);
    else if (r == 0)
      status = weir_wire_decode_dense(group->context, message, bytes, group->n, sum);
    else
      status = weir_wire_decode_add(group->context, message, bytes, group->n, sum);
    if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, r, status);
  }
  return WEIR_OK;
}

/* Is an element of the sum not finite?  It is made in spare, which nobody has a use for while the
 * residual waits in the submitted buffers, and let go of at once. */
static weir_status find_overflow(weir_group *group) {
  const weir_status status = add_up(group, group->spare);
  const size_t bytes = group->n * sizeof(float);
  group->overflow = !isfinite(weir_sum_square(group->spare, group->n));
  if (group->engine->device != NULL) memset(group->spare, 0, bytes); /* as it always is there */
  weir_give_back(group->spare, bytes);
  return status;
}

/* Nothing that adding them up could find is wrong with the messages.  Where their largest values
 * would overflow together, whether they meet is seen from the sum itself; if so the step is
 * dropped: all ranks hold the same messages and find alike. */
weir_status weir_ag_look_through(weir_group *group) {
  weir_engine *engine = group->engine;
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  double most = 0;
  for (int r = 0; r < engine->size; r++) {
    double peak = 0;
    const weir_status status =
        codec->encode != NULL
            ? codec->check(block(group, r), group->block_bytes[r], &group->layout, &peak)
            : weir_wire_check(group->context, block(group, r), group->block_bytes[r], group->n,
                              &peak);
    if (status != WEIR_OK) return weir_comm_refuse(engine->config.comm, r, status);
    most += peak;
  }
  /* Each addition may round upwards. */
  const bool small = most * (1 + engine->size * (double)FLT_EPSILON) <= (double)FLT_MAX;
  return small ? WEIR_OK : find_overflow(group);
}

void weir_ag_count(weir_group *group) {
  weir_gathering *sent = &group->passage.sent;
  sent->rounds++;
  for (int r = 0; r < group->engine->size; r++) sent->bytes += (double)group->block_bytes[r];
}

weir_status weir_exchange_ag(weir_group *group, const weir_allreduce *allreduce,
                             weir_notes *notes) {
  (void)allreduce;
  if (group->pieces)
    return weir_codec_find(group->plan.codec)->encode != NULL ? weir_exchange_pieces(group, notes)
                                                              : weir_exchange_spans(group, notes);
  weir_status status = weir_allgather(group->engine->config.comm, group->blocks, group->stride,
                                      group->block_bytes, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  weir_ag_count(group);
  group->passage.sum = group->spare;
  status = group->merged ? weir_merged_sum(group)
           : group->late ? weir_ag_look_through(group)
                         : add_up(group, group->spare);
  weir_lap_compress(group);
  return status;
}

weir_status weir_publish_ag(weir_group *group, float share) {
  if (!group->late) return weir_residual_publish(group, share);
  float *const sum = weir_residual_let_go(group);
  const weir_status status = add_up(group, sum);
  if (status == WEIR_OK) weir_residual_publish_late(group, sum, share);
  return status;
}
