/* libFuzzer: what people and launchers write.  The first byte says what the rest is: a plan, a
 * schedule, a division into buckets, a filter, widths, options, the environment; or a file, which
 * lies in memory: a scenario, a trace, a planner's table.  What is accepted comes back from its own
 * text, and what is refused of a file is refused with its name in front. */
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/launch.h>

#include "base/log.h"
#include "base/trace_file.h"
#include "controller/bits.h"
#include "controller/controller.h"
#include "controller/stages.h"
#include "controller/table.h"
#include "demand.h"
#include "lab/scenario.h"
#include "lab/schedule.h"
#include "lab/trace.h"
#include "planner/curve.h"
#include "planner/profile.h"
#include "session/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* --- words ------------------------------------------------------------------------------------ */

static void feed_plan(const char *text) {
  weir_plan plan = {0}, again = {0};
  char name[WEIR_PLAN_TEXT_MAX], twice[WEIR_PLAN_TEXT_MAX];
  if (weir_plan_parse(text, &plan) != WEIR_OK) return;
  weir_plan_format(&plan, name);
  demand(weir_plan_parse(name, &again) == WEIR_OK, "a plan's own text is refused");
  weir_plan_format(&again, twice);
  demand(strcmp(name, twice) == 0, "a plan's text is another's");
}

static void feed_stages(const char *text) {
  weir_stages stages;
  if (weir_stages_parse(text, &stages) != WEIR_OK) return;
  demand(stages.count >= 1 && stages.count <= WEIR_STAGES_MAX, "a schedule without stages");
  for (size_t i = 1; i < stages.count; i++)
    demand(stages.stage[i].from > stages.stage[i - 1].from, "stages that do not ascend");
}

/* Words that a policy begins with need not be found by chance. */
static void feed_policy(const char *text) {
  weir_plan plan;
  static const char *const names[] = {"", "fixed:", "schedule:", "groups:", "bits:", "paper:"};
  const size_t kinds = sizeof names / sizeof *names;
  if (*text == '\0') return;
  g_autofree char *policy = g_strconcat(names[(unsigned char)*text % kinds], text + 1, NULL);
  if (weir_policy_check(policy) != WEIR_OK) return;
  const weir_beginning with = {.ranks = 4};
  if (strchr(policy, '/') == NULL || strncmp(policy, "groups:", 7) != 0)
    demand(weir_policy_first_plan(policy, &with, &plan) == WEIR_OK, "a policy without a plan");
}

static void feed_filter(const char *text) {
  const bool good = weir_filter_check(text) == WEIR_OK;
  (void)(good && weir_filter_takes(text, "model.layer.0.bias", 64));
}

static void feed_widths(const char *text) {
  weir_bits_options options;
  if (weir_bits_parse(text, &options) != WEIR_OK) return;
  demand(options.alpha >= 1 && options.period >= 1, "widths out of range");
}

/* --- divisions into buckets ------------------------------------------------------------------- */

enum { TENSORS = 5 };
static const size_t offset[TENSORS + 1] = {0, 100, 101, 5000, 70000, 70001};
static const char *const names[TENSORS] = {"a", "b", "fc.weight", "fc.bias", "last"};
static const weir_layout layout = {TENSORS, offset};

static void feed_groups(const char *text) {
  weir_table_text table;
  weir_turns turns;
  weir_plan_bucket buckets[TENSORS];
  size_t count;
  if (weir_table_parse(text, &table) != WEIR_OK || weir_turns_build(&turns, &table, &layout, names))
    return;
  for (size_t k = 0; k < turns.count; k++) {
    weir_turns_next(&turns, TENSORS, buckets, &count);
    demand(count >= 1 && count <= TENSORS && buckets[count - 1].end == TENSORS, "not all tensors");
    demand(weir_buckets_check(buckets, count, TENSORS) == WEIR_OK, "a table that cannot be");
  }
  weir_turns_free(&turns);
}

/* --- options and the environment -------------------------------------------------------------- */

/* NAME=VALUE a line. */
static void each_line(char *text, void (*take)(void *user, char *name, char *value), void *user) {
  char *rest = NULL;
  for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    char *equals = strchr(line, '=');
    if (equals == NULL) continue;
    *equals = '\0';
    take(user, line, equals + 1);
  }
}

static void open_session(const weir_options *options) {
  weir_session *session = NULL;
  if (weir_session_create(&session, options) == WEIR_OK) weir_session_free(session);
}

static void set_option(void *user, char *name, char *value) {
  (void)weir_options_set(user, name, value);
}

static void feed_options(char *text) {
  weir_options options;
  weir_options_init(&options);
  each_line(text, set_option, &options);
  options.device = -1;
  if (options.secret_file != NULL || options.tls_key != NULL) return; /* files of ours */
  open_session(&options);
}

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_NODELIST",
                                        "SLURM_JOB_ID",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "WEIR_RENDEZVOUS",
                                        "WEIR_SECRET",
                                        "WEIR_TLS",
                                        "WEIR_TRACE_MB"};
enum { VARIABLES = sizeof variables / sizeof *variables };

static void set_variable(void *user, char *name, char *value) {
  (void)user;
  for (size_t i = 0; i < VARIABLES; i++)
    if (strcmp(name, variables[i]) == 0) (void)setenv(name, value, 1);
}

static void feed_environment(char *text) {
  weir_launch launch = {.struct_size = sizeof launch};
  weir_options options;
  weir_tracer *tracer = NULL;
  each_line(text, set_variable, NULL);
  weir_options_init(&options);
  if (weir_launch_read(&launch) == WEIR_OK)
    demand(launch.rank >= 0 && launch.rank < launch.world_size, "a rank that cannot be");
  if (weir_options_from_environment(&options, &launch) == WEIR_OK) open_session(&options);
  if (weir_tracer_open(&tracer, 0) == WEIR_OK) weir_tracer_close(tracer);
  for (size_t i = 0; i < VARIABLES; i++) (void)unsetenv(variables[i]);
}

/* --- files ------------------------------------------------------------------------------------ */

static int file = -1;
static char path[64];

static void write_file(const void *data, size_t size) {
  if (file < 0) {
    file = memfd_create("fuzz_texts", MFD_CLOEXEC);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  }
  demand(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size,
         "no file in memory");
}

/* Who reads what is refused finds the file, and with a line the place in it. */
static bool accepted(weir_status status) {
  if (status == WEIR_OK) return true;
  const char *said = weir_last_error();
  demand(strncmp(said, path, strlen(path)) == 0, "an error without its file");
  demand(said[strlen(path)] == ':', "an error without its place");
  return false;
}

static void feed_trace(const uint8_t *data, size_t size) {
  weir_trace_config config = {.latency_ms = 1, .interval_s = 1, .window_s = 1, .slot_bytes = 1500};
  weir_trace trace;
  write_file(data + 1, size - 1);
  (void)snprintf(config.file, sizeof config.file, "%s", path);
  if (data[0] & 1) config.interval_s = 0.05;
  if (data[0] & 2) config.window_s = 3600;
  if (data[0] & 4) config.slot_bytes = 1;
  if (!accepted(weir_trace_read(&trace, &config))) return;
  const double seconds = weir_trace_seconds(&trace, data[0] & 8 ? 1e-9 : 1, 17.3, 1e7);
  demand(isfinite(seconds) && seconds > 0, "a message that takes no time");
  demand(weir_trace_rate(&trace, 1e9) > 0, "no rate");
  weir_trace_free(&trace);
}

static void feed_scenario(const uint8_t *data, size_t size, bool network) {
  static weir_scenario s;
  write_file(data, size);
  if (!accepted(network ? weir_scenario_read_network(&s, path) : weir_scenario_read(&s, path)))
    return;
  for (size_t i = 0; i < s.phase_count; i++) {
    weir_shape shape;
    weir_scenario_shape(&s, &s.phases[i], &shape);
    demand(isfinite(shape.rate_bytes_s) && shape.rate_bytes_s > 0, "a phase without a rate");
  }
  const weir_schedule schedule = {.scenario = &s};
  if (s.phase_count > 0) (void)weir_schedule_check(&schedule);
}

static void feed_table(const uint8_t *data, size_t size) {
  weir_table_text table = {.kind = WEIR_TABLE_FILE, .path = path};
  weir_plan_bucket buckets[TENSORS];
  char filter[WEIR_FILTER_MAX] = "";
  size_t count = 0;
  write_file(data, size);
  if (accepted(weir_table_filter(&table, filter))) demand(weir_filter_check(filter) == 0, "filter");
  if (!accepted(weir_table_build(&table, &layout, names, buckets, &count))) return;
  demand(weir_buckets_check(buckets, count, TENSORS) == WEIR_OK, "a table that cannot be");
}

static void feed_planner(const uint8_t *data, size_t size, unsigned kind) {
  weir_profile profile;
  weir_curve curve;
  weir_bits_stats stats;
  write_file(data, size);
  if (kind == 0 && accepted(weir_profile_load(&profile, path))) weir_profile_free(&profile);
  if (kind == 1 && accepted(weir_curve_load(&curve, path))) {
    const weir_curve fit = weir_curve_fit(&curve);
    demand(weir_curve_check(&fit, "fit") == WEIR_OK, "a line that is none");
    weir_curve_free(&curve);
  }
  if (kind == 2 && accepted(weir_bits_load(&stats, path, "bias", 128))) {
    weir_bits bits = {0};
    demand(weir_bits_uniform(&stats, &bits) == WEIR_OK, "widths without 4 bits");
    weir_bits_drop(&bits);
    weir_bits_free(&stats);
  }
}

/* --- all -------------------------------------------------------------------------------------- */

static void keep_quiet(void *user, const weir_log_line *line) {
  (void)user;
  (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  weir_log_set(keep_quiet, NULL);
  (void)setenv("WEIR_STATUS", "off", 1);
  (void)setenv("WEIR_TRACE", "/dev/null", 1);
  g_autofree char *text = g_strndup((const char *)data + 1, size - 1);
  switch (data[0]) {
    case 'p': feed_plan(text); break;
    case 's': feed_stages(text); break;
    case 'P': feed_policy(text); break;
    case 'f': feed_filter(text); break;
    case 'w': feed_widths(text); break;
    case 'g': feed_groups(text); break;
    case 'o': feed_options(text); break;
    case 'e': feed_environment(text); break;
    case 't': feed_trace(data + 1, size - 1); break;
    case 'i': feed_scenario(data + 1, size - 1, false); break;
    case 'n': feed_scenario(data + 1, size - 1, true); break;
    case 'G': feed_table(data + 1, size - 1); break;
    case '0':
    case '1':
    case '2': feed_planner(data + 1, size - 1, data[0] - '0'); break;
    default: break;
  }
  return 0;
}
