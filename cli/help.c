/* What several sub-commands say in their --help. */
#include <glib.h>

#include <weir/plan.h>

#include "cli.h"

static gboolean fit(uint32_t codec, uint32_t collective, double cr) {
  const weir_plan plan = {.codec = codec, .collective = collective, .cr = cr};
  return weir_plan_check(&plan) == WEIR_OK;
}

char *help_policies(void) {
  GString *text = g_string_new(
      "Policies:\n"
      "  weir     decides by what it measures (the default)\n"
      "  paper    the controller of the publication\n"
      "  fixed:CODEC:CR:COLLECTIVE[:WIRE]   always the same; \"fixed:\" may be left out\n"
      "  groups:GROUPS   always the same groups of tensors, exchanged while the backward pass goes on:\n"
      "    layers:PLAN, bucket=MB:PLAN, even=N:PLAN, or a CSV file last,plan,place\n"
      "    CR is the fraction of the gradient that is kept, in (0, 1].  What goes together:\n");
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    g_string_append_printf(text, "      %-8s", weir_codec_name(codec));
    gboolean dense = TRUE;
    for (uint32_t collective = 0; collective < WEIR_COLL_COUNT; collective++) {
      if (!fit(codec, collective, 1.0)) continue;
      g_string_append_printf(text, " %s", weir_collective_name(collective));
      if (fit(codec, collective, 0.5)) dense = FALSE;
    }
    g_string_append(text, dense ? "   (CR 1)\n" : "\n");
  }
  g_string_append(text, "    WIRE, how kept elements are written:");
  for (uint32_t wire = 0; wire < WEIR_WIRE_COUNT; wire++)
    g_string_append_printf(text, " %s%s", weir_wire_name(wire), wire ? "" : " (default)");
  g_string_append(text, "\n    for example fixed:star:0.01:art-tree or fixed:none:1:dense-ring\n");
  return g_string_free(text, FALSE);
}
