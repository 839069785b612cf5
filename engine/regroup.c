/* After the group has ended: an engine goes on with the survivors.  A step may have been completed by
 * some of them and not by others; then all of its contributions had been sent, this rank's too, and
 * those behind only have to draw the consequences. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/state.h"

void weir_engine_stand(weir_engine *engine, weir_standing *standing) {
  weir_lanes_free(engine->lanes); /* what they still do is bounded */
  engine->lanes = NULL;
  weir_residual_part(engine); /* of a step that nobody has ended */
  if (engine->in_trial) weir_checkpoint_restore(engine);
  engine->in_trial = engine->in_step = false;
  *standing = (weir_standing){.committed = engine->committed, .exchanges = engine->exchanges,
                              .turn = engine->turn};
  for (size_t i = 0; i < engine->state_count; i++) standing->state_bytes += engine->states[i].bytes;
}

/* The residual of what this rank sent of a group in the step it failed in.  Groups that were through
 * know theirs. */
static weir_status settle_group(weir_group *group) {
  weir_engine *engine = group->engine;
  const weir_codec *codec = weir_codec_find(group->plan.codec);
  weir_passage *passage = &group->passage;
  if (codec->dense || passage->next != NULL) return WEIR_OK;
  if (codec->low_rank)
    return weir_fail(WEIR_E_UNSUPPORTED, "a rank that missed a step of %s cannot be brought up to it",
                     codec->name);
  if (codec->encode != NULL) {
    const weir_status status = codec->decode(
        engine->context, group->blocks + (size_t)engine->rank * group->stride,
        group->block_bytes[engine->rank], &group->layout, group->spare, false);
    if (status != WEIR_OK) return status;
    (void)weir_ef_subtract(group->fed, group->spare, group->n);
  } else {
    weir_scatter_zero(group->fed, group->index, group->kept);
    weir_scatter_add(group->fed, group->index, group->error, group->kept);
  }
  passage->next = group->fed;
  return WEIR_OK;
}

static weir_status settle(weir_engine *engine) {
  for (size_t k = 0; k < engine->set.count; k++) {
    const weir_status status = settle_group(&engine->set.group[k]);
    if (status != WEIR_OK) return status;
  }
  weir_engine_commit(engine);
  return WEIR_OK;
}

/* Registered memory, from a rank that is not behind to all. */
static weir_status share_state(weir_engine *engine, int from) {
  static const char name[] = "weir state after a loss";
  weir_comm_step(engine->config.comm, weir_hash(WEIR_HASH_INIT, name, sizeof name),
                 engine->exchanges);
  for (size_t i = 0; i < engine->state_count; i++) {
    size_t bytes = engine->states[i].bytes;
    const weir_status status = weir_broadcast(engine->config.comm, from, engine->states[i].data,
                                              engine->states[i].bytes, &bytes);
    if (status != WEIR_OK) return status;
    if (bytes != engine->states[i].bytes)
      return weir_fail(WEIR_E_PROTOCOL, "rank %d registered %zu bytes of state, this rank %zu", from,
                       bytes, engine->states[i].bytes);
  }
  return WEIR_OK;
}

static weir_status find_leader(const weir_standing *all, int ranks, int *leader, bool *behind) {
  *leader = 0;
  *behind = false;
  for (int r = 1; r < ranks; r++)
    if (all[r].committed > all[*leader].committed) *leader = r;
  for (int r = 0; r < ranks; r++) {
    if (all[r].committed != all[*leader].committed) *behind = true;
    if (all[r].committed + 1 < all[*leader].committed ||
        all[r].state_bytes != all[*leader].state_bytes)
      return weir_fail(WEIR_E_MISMATCH, "ranks %d and %d do not belong together any more", r,
                       *leader);
  }
  return WEIR_OK;
}

/* Room for the new group; afterwards nothing can fail for want of memory. */
static weir_status resize(weir_engine *engine, bool (*want_curve)(void *)) {
  weir_note *notes = calloc((size_t)engine->size, sizeof *notes);
  if (notes == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", engine->size);
  free(engine->notes);
  engine->notes = notes;
  engine->config.hooks.want_curve = want_curve;
  weir_status status = WEIR_OK;
  if (want_curve != NULL && engine->curve == NULL)
    status = weir_gain_curve_create(&engine->curve);
  if (status == WEIR_OK) status = weir_engine_adopt(engine, &engine->config.first_plan, NULL);
  return status;
}

weir_status weir_engine_regroup(weir_engine *engine, weir_comm *comm, weir_transport *transport,
                                const weir_standing *all, bool (*want_curve)(void *), int *leader,
                                bool *missed) {
  const int ranks = weir_comm_size(comm), rank = weir_comm_rank(comm);
  bool behind = false;
  engine->config.comm = comm;
  engine->config.transport = transport;
  weir_status status = find_leader(all, ranks, leader, &behind);
  *missed = status == WEIR_OK && all[rank].committed != all[*leader].committed;
  if (*missed) status = settle(engine); /* in the old numbers */
  engine->rank = rank;
  engine->size = ranks;
  if (status == WEIR_OK) status = resize(engine, want_curve);
  for (int r = 0; status == WEIR_OK && r < ranks; r++) {
    if (all[r].exchanges > engine->exchanges) engine->exchanges = all[r].exchanges;
    if (all[r].turn > engine->turn) engine->turn = all[r].turn;
  }
  if (status == WEIR_OK && behind) status = share_state(engine, *leader);
  if (status != WEIR_OK) return weir_engine_break(engine, status);
  engine->committed = all[*leader].committed;
  memset(&engine->pending, 0, sizeof engine->pending);
  engine->last_compress_s = engine->last_comm_s = 0;
  engine->broken = WEIR_OK;
  return WEIR_OK;
}
