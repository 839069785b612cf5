/* Encoders through a compressed all-reduce: partial sums travel as messages, and whoever encodes
 * keeps what that loses, of its own gradient and of the sums that it encodes again.
 *
 * Encoding is part of the hops, so all of it counts as communication. */
#include <math.h>

#include "base/base.h"
#include "engine/state.h"

weir_status weir_prepare_compressed(weir_group *group) {
  group->passage.sum = group->fed;
  group->passage.next = group->spare;
  return WEIR_OK;
}

weir_status weir_exchange_compressed(weir_group *group, const weir_allreduce *allreduce,
                                     weir_notes *notes) {
  (void)allreduce;
  weir_passage *passage = &group->passage;
  const uint64_t words[2] = {group->engine->turn, group->number};
  const weir_coder coder = {.codec = weir_codec_find(group->plan.codec),
                            .context = group->context,
                            .cr = group->plan.cr,
                            .seed = weir_hash(WEIR_HASH_INIT, words, sizeof words)};
  weir_status status = group->compressed->run(group->engine->config.comm, &coder, group->fed,
                                              group->n, group->spare, notes);
  weir_lap_comm(group);
  if (status != WEIR_OK) return status;
  const double lost = weir_sum_square(group->spare, group->n);
  passage->kept_square = fmax(passage->moments.sum_square - lost, 0);
  weir_lap_compress(group);
  return WEIR_OK;
}
