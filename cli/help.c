/* Options of several sub-commands, and what they say in their --help. */
#include <glib.h>
#include <string.h>
#include <weir/plan.h>

#include "base/path.h"
#include "base/schemes.h"
#include "cli.h"

static GOptionEntry text_option(const char *name, char letter, const char *what,
                                const char *argument, char **to) {
  return (GOptionEntry){name, letter, 0, G_OPTION_ARG_STRING, to, what, argument};
}

GOptionEntry cli_option_out(char **to) {
  return (GOptionEntry){
      "out", 'o', 0, G_OPTION_ARG_FILENAME, to, "folder for the results (made if missing)", "DIR"};
}

GOptionEntry cli_option_policy(char **to) {
  return text_option("policy", 'p', "who decides; default: the scenario's, else weir", "POLICY",
                     to);
}

GOptionEntry cli_option_risk(char **to) {
  return text_option("risk", 'r',
                     "what policy weir may choose among: safe, measured or bold (see below); "
                     "default: the scenario's, else measured",
                     "RISK", to);
}

GOptionEntry cli_option_network(char **to) {
  return text_option("network", 'n', "auto (default), tc, uml or sim", "NETWORK", to);
}

GOptionEntry cli_option_clock(char **to) {
  return text_option(
      "clock", 'c',
      "clock of User-Mode Linux: real (default), skip-idle (waiting takes no real time) or "
      "free-cpu (computing takes no time inside, either, beyond what the scenario says): see "
      "docs/guide/scenarios.md",
      "CLOCK", to);
}

GOptionEntry cli_option_workers(char **to) {
  return text_option("workers", 'w', "number of workers; default: the scenario's", "N", to);
}

GOptionEntry cli_option_seed(char **to) {
  return text_option("seed", 's', "random seed; default: the scenario's", "S", to);
}

GOptionEntry cli_option_scenario(char ***to) {
  return (GOptionEntry){G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, to, NULL,
                        "SCENARIO"};
}

/* Of paths, those that compress. */
static gboolean fit(uint32_t codec, uint32_t scheme, double cr) {
  weir_plan plan = {.codec = codec, .scheme = scheme, .cr = cr};
  if (scheme == WEIR_SCHEME_PATH && weir_path_parse("c.ag.d", &plan) != WEIR_OK) return FALSE;
  return weir_plan_check(&plan) == WEIR_OK;
}

/* Does the codec go with the scheme, at any ratio? */
static gboolean goes(uint32_t codec, uint32_t scheme) {
  gboolean any = fit(codec, scheme, 1.0);
  for (unsigned bits = 1; bits <= 16 && !any; bits++) any = fit(codec, scheme, bits / 32.0);
  return any;
}

/* What the codec's ratio is. */
static const char *ratio(uint32_t codec) {
  uint32_t scheme = 0;
  while (scheme + 1 < WEIR_SCHEME_COUNT && !goes(codec, scheme)) scheme++;
  if (scheme == WEIR_SCHEME_LOW_RANK)
    return fit(codec, scheme, 1.0) ? "   (CR: the rank, 1 to 64)" : "   (CR: the rank, 1 to 32)";
  if (!fit(codec, scheme, 1.0)) return "   (CR: bits an element / 32)";
  return fit(codec, scheme, 0.3) ? "" : "   (CR: 1)";
}

static gboolean alike(uint32_t a, uint32_t b) {
  for (uint32_t s = 0; s < WEIR_SCHEME_COUNT; s++)
    if (goes(a, s) != goes(b, s)) return FALSE;
  return !strcmp(ratio(a), ratio(b));
}

/* A line for all codecs that go with the same schemes at the same ratios; the first of them. */
static void add_codecs(GString *text, uint32_t first) {
  for (uint32_t codec = 0; codec < first; codec++)
    if (alike(codec, first)) return;
  g_string_append(text, "     ");
  for (uint32_t codec = first; codec < WEIR_CODEC_COUNT; codec++)
    if (alike(codec, first)) g_string_append_printf(text, " %s", weir_codec_name(codec));
  g_string_append(text, ":");
  for (uint32_t s = 0; s < WEIR_SCHEME_COUNT; s++)
    if (goes(first, s)) g_string_append_printf(text, " %s", weir_schemes[s].name);
  g_string_append_printf(text, "%s\n", ratio(first));
}

/* The collectives of a scheme that name their algorithm. */
static void add_scheme(GString *text, uint32_t scheme) {
  char name[WEIR_COLLECTIVE_TEXT_MAX];
  const char *before = "";
  g_string_append_printf(text, "      %s", weir_schemes[scheme].name);
  if (scheme == WEIR_SCHEME_HITOPK)
    g_string_append(text, ", top-k of machines' sums, gathered between several machines");
  if (weir_schemes[scheme].algorithms != 0) g_string_append(text, ", or by name");
  for (weir_plan plan = {0}; weir_collective_next(&plan);) {
    if (plan.scheme != scheme || plan.algorithm == WEIR_ALGORITHM_ANY) continue;
    weir_plan_collective(&plan, name);
    g_string_append_printf(text, "%s %s", before, name);
    before = ",";
  }
  g_string_append(text, "\n");
}

char *help_policies(const char *ending) {
  GString *text = g_string_new(
      "Policies:\n"
      "  weir     decides by what it measures (the default), among plans that keep the loss of a\n"
      "    training (fp32, 16 bits, and, as far as it is known what the optimizer makes of few\n"
      "    bits, companded of 5 bits, of 4 and 3.5 once the loss falls, under Adam and its like\n"
      "    whitened of 5 until then, under SGD qsgd of 3 and dithered of 4, of which less than "
      "1.5\n"
      "    travel, and nonzero where gradients are mostly zero), and, at default risk, others\n"
      "    that have shown it in trials;\n"
      "    at risk \"bold\" among dense and top-k at any ratio, by a model of progress that was\n"
      "    fitted to one training and can keep another from learning\n"
      "  paper[:CODECS]   the published controller: trials, NSGA-II, knee; it trusts the\n"
      "    compression gain and keeps a thousandth to a tenth of the gradient, which some\n"
      "    trainings do not survive (a GPT with Adam stops learning); CODECS is mstopk (default)\n"
      "    or lwtopk, for all-gathers, and star (default), var or both, for all-reduces, joined "
      "by\n"
      "    +; of both (paper:star+var) the one goes on under which the loss of the trials was "
      "lower\n"
      "  bits[:METHOD[:ALPHA[:STEPS]]]   a width of 2 to 8 bits for every tensor, reassigned\n"
      "    every STEPS (100) steps from gradient statistics: fewest bytes with an error of at\n"
      "    most ALPHA (2) times that of 4 bits; METHOD is knapsack (default), kmeans, linear,\n"
      "    bayes or uniform\n"
      "  fixed:CODEC:CR:COLLECTIVE[:WIRE]   always the same plan; \"fixed:\" may be left out,\n"
      "    for example fixed:star:0.01:art-tree or none:1:dense-ring\n"
      "  schedule:PLAN;epoch=N:PLAN;...   plans one after the other, each from an epoch on, or "
      "from\n"
      "    a step with step=N; for example schedule:mstopk:0.01:hitopk;epoch=13:none:1:dense\n"
      "  groups:GROUPS   always the same groups of tensors, exchanged during the backward pass:\n"
      "    layers:PLAN, bucket=MB:PLAN, even=N:PLAN, or a CSV file last,plan,place; PLAN has the\n"
      "    form of a fixed policy without \"fixed:\"; lines PATTERN,full,caller before the others\n"
      "    name tensors that stay in full precision, as the scenario key full_precision does\n"
      "\n"
      "CR is the fraction of the gradient that is kept, in (0, 1], unless stated otherwise.\n"
      "Codecs, and the schemes that each goes with:\n"
      "");
  for (uint32_t codec = 0; codec < WEIR_CODEC_COUNT; codec++) add_codecs(text, codec);
  g_string_append(
      text,
      "COLLECTIVE is a scheme, whose algorithm is then the cheapest on the network as it\n"
      "is measured, or names the algorithm too:\n");
  for (uint32_t scheme = 0; scheme < WEIR_SCHEME_LOW_RANK; scheme++) add_scheme(text, scheme);
  g_string_append(
      text,
      "      path=TASKS, one after the other, separated by dots: c compress, d decompress, ar\n"
      "      all-reduce, rs reduce-scatter, r reduce, a2a all-to-all, g gather, ag all-gather, b\n"
      "      broadcast; 1 or 2 communications among all, 3 or 4 inside of machines first and "
      "last\n");
  g_string_append(text, "WIRE is how that is written.\n      kept elements:");
  for (uint32_t wire = 0; wire < WEIR_WIRE_LISTS; wire++)
    g_string_append_printf(text, " %s%s", weir_wire_name(wire), wire ? "" : " (default)");
  g_string_append(
      text,
      "\n"
      "      quantizers by ag, sra and hier-sra: huffman (codes by how often they occur)\n"
      "      powersgd and bilateral by dense-sra and dense-one-shot (5 bits): huffman\n"
      "      powersgd and bilateral by any other dense (fp32): auto-bf16 (16 bits)\n"
      "qsgd may name its bucket instead, bucket=64 to bucket=8192 elements (128)\n");
  g_string_append(text, ending);
  return g_string_free(text, FALSE);
}
