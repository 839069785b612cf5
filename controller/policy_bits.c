/* Widths per tensor, assigned anew from what was measured since the last time ("CGX", section 5:
 * "we periodically collect gradient statistics and then re-assign bit-widths"; the paper names no
 * period). It starts with 4 bits for all; from the second step on some tensors are kept in full
 * precision. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "controller/bits.h"
#include "controller/loop.h"

static const char first[] = "qsgd:0.125:ag",
                  unquantized[] = "none:1:dense"; /* of what keeps all bits */
static const uint64_t first_steps = 10; /* to the first assignment: of the noisiest gradients */

const weir_codec *weir_bits_codec(void) {
  weir_plan plan = {0};
  return weir_plan_parse(first, &plan) == WEIR_OK ? weir_codecs[plan.codec] : NULL;
}

/* Read, assign and, where that makes other buckets, direct a switch. */
static weir_status assign(weir_loop *loop, const weir_observation *seen,
                          const weir_bits_options *options) {
  weir_bits_run *bits = loop->bits;
  weir_bits_read(bits->sampler, &bits->stats, &bits->measured);
  weir_status status = weir_bits_assign(bits->stats, options, &bits->assigned);
  weir_plan dense, plan = loop->current;
  if (status == WEIR_OK) status = weir_plan_parse(unquantized, &dense);
  if (status != WEIR_OK) return status;
  const size_t count =
      weir_bits_table(bits->stats, bits->assigned.choice, &dense, loop->next_table);
  if (weir_network_known(&seen->network, loop->workers)) {
    const weir_group_shape shape = weir_loop_shape(loop);
    const weir_link link = weir_learn_link(loop, &seen->network);
    weir_bits_schemes(&loop->layout, shape, &link, loop->devices, loop->next_table, count);
  }
  weir_table_plan(loop->next_table, count, &loop->layout, &plan);
  bits->since = 0;
  bits->changed = plan.layout != loop->current.layout;
  if (!bits->changed) return WEIR_OK;
  memcpy(loop->table, loop->next_table, count * sizeof *loop->table);
  weir_loop_say(loop, "other widths or buckets of elements: %zu buckets", count);
  weir_loop_direct(loop, WEIR_ACTION_SWITCH, &plan);
  return WEIR_OK;
}

static weir_status consider(weir_loop *loop, const weir_observation *seen) {
  static const weir_bits_options uniform = {WEIR_BITS_UNIFORM, 1.0, 1};
  weir_bits_run *bits = loop->bits;
  if (loop->current.buckets == 0) return assign(loop, seen, &uniform);
  bits->since++;
  const uint64_t due = loop->decisions == 0 && bits->options.period > first_steps
                           ? first_steps
                           : bits->options.period;
  if (bits->since < due || !weir_network_known(&seen->network, loop->workers) ||
      !weir_bits_ready(bits->sampler))
    return WEIR_OK;
  weir_decision decision;
  const uint32_t trigger = loop->decisions == 0 ? WEIR_TRIGGER_START : WEIR_TRIGGER_PERIODIC;
  const weir_status status = assign(loop, seen, &bits->options);
  return status == WEIR_OK ? weir_loop_decide(loop, seen, trigger, &decision) : status;
}

static weir_status check(const char *text) {
  weir_bits_options options;
  return weir_bits_parse(text, &options);
}

weir_status weir_bits_open(weir_bits_run **out, const char *text, const weir_layout *layout,
                           const char *const *names, size_t full, size_t sizes) {
  weir_bits_run *bits = *out = calloc(1, sizeof *bits);
  if (bits == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for policy bits");
  weir_status status = weir_bits_parse(text, &bits->options);
  if (status == WEIR_OK && layout->tensors == 0)
    status = weir_fail(WEIR_E_INVALID, "policy bits needs tensors to assign widths to");
  if (status == WEIR_OK)
    status = weir_bits_sampler_create(&bits->sampler, layout, names, full, sizes);
  if (status != WEIR_OK) return status;
  bits->assigned.choice = calloc(layout->tensors, sizeof *bits->assigned.choice);
  return bits->assigned.choice != NULL
             ? WEIR_OK
             : weir_fail(WEIR_E_NOMEM, "no memory for %zu widths", layout->tensors);
}

void weir_bits_close(weir_bits_run *bits) {
  if (bits == NULL) return;
  free(bits->assigned.choice);
  weir_bits_sampler_free(bits->sampler);
  free(bits);
}

const weir_policy weir_policy_bits = {
    .name = "bits",
    .description =
        "bits[:METHOD[:ALPHA[:STEPS]]], a width and a bucket for every tensor, assigned anew every "
        "STEPS",
    .id = WEIR_POLICY_BITS,
    .check = check,
    .first = first,
    .heaviest = {"qsgd:0.25:ag:bucket=64"},
    .without_feedback = true,
    .consider = consider,
};
