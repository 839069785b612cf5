/* What several sub-commands say in their --help. */
#include <glib.h>
#include <weir/plan.h>

#include "cli.h"

const char help_clock[] =
    "of User-Mode Linux: real (default); skip-idle: waiting takes no time outside; free-cpu: "
    "processors take no time inside either, but for what gflops and layer_ms say "
    "(docs/scenarios.md)";

static gboolean fit(uint32_t codec, uint32_t collective, double cr) {
  const weir_plan plan = {.codec = codec, .collective = collective, .cr = cr};
  return weir_plan_check(&plan) == WEIR_OK;
}

/* What the codec's ratio is. */
static const char *ratio(uint32_t codec, uint32_t collective) {
  if (codec == WEIR_CODEC_POWERSGD) return "   (CR: the rank, 1 to 64)";
  if (!fit(codec, collective, 1.0)) return "   (CR: bits an element / 32)";
  return fit(codec, collective, 0.3) ? "" : "   (CR 1)";
}

char *help_policies(const char *ending) {
  GString *text = g_string_new(
      "Policies:\n"
      "  weir     decides by what it measures (the default)\n"
      "  paper    the controller of the publication\n"
      "  bits[:METHOD[:ALPHA[:STEPS]]]   a width from 2 to 8 bits for every tensor, assigned anew "
      "every\n"
      "    STEPS (100) from gradient statistics: least bytes with an error of at most ALPHA (2) "
      "times that\n"
      "    of 4 bits; METHOD knapsack (default), kmeans, linear, bayes or uniform\n"
      "  fixed:CODEC:CR:COLLECTIVE[:WIRE]   always the same; \"fixed:\" may be left out\n"
      "  groups:GROUPS   always the same groups of tensors, exchanged while the backward pass goes "
      "on:\n"
      "    layers:PLAN, bucket=MB:PLAN, even=N:PLAN, or a CSV file last,plan,place\n"
      "    CR is the fraction of the gradient that is kept, in (0, 1].  What goes together:\n");
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) {
    g_string_append_printf(text, "      %-15s", weir_codec_name(codec));
    const char *says = "";
    for (uint32_t collective = 0; collective < WEIR_COLL_COUNT; collective++) {
      gboolean any = fit(codec, collective, 1.0);
      for (unsigned bits = 1; bits <= 16 && !any; bits++) any = fit(codec, collective, bits / 32.0);
      if (!any) continue;
      g_string_append_printf(text, " %s", weir_collective_name(collective));
      says = ratio(codec, collective);
    }
    g_string_append_printf(text, "%s\n", says);
  }
  g_string_append(text, "    WIRE, how kept elements are written:");
  for (uint32_t wire = 0; wire < WEIR_WIRE_COUNT; wire++)
    g_string_append_printf(text, " %s%s", weir_wire_name(wire), wire ? "" : " (default)");
  g_string_append(text, "\n    for example fixed:star:0.01:art-tree or fixed:none:1:dense-ring\n");
  g_string_append(text, ending);
  return g_string_free(text, FALSE);
}
