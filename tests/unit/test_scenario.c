/* Scenario files: what is read, and that every bad one is refused with its file and line. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/status.h>

#include "lab/scenario.h"
#include "lab/trace.h"

static const char good[] =
    "# a comment\n"                     /* 1 */
    "[scenario]\n"                      /* 2 */
    "name = two phases ; and another\n" /* 3 */
    "workers = 3\n"                     /* 4 */
    "bandwidth_scale = 0.5\n"           /* 5 */
    "[training]\n"                      /* 6 */
    "batch = 16\n"                      /* 7 */
    "learning_rate = 0.1\n"             /* 8 */
    "epochs = 6\n"                      /* 9 */
    "decay_epochs = 3, 5\n"             /* 10 */
    "[phase fast]\n"                    /* 11 */
    "epochs = 1-4\n"                    /* 12 */
    "latency_ms = 1\n"                  /* 13 */
    "bandwidth_gbps = 25\n"             /* 14 */
    "[phase slow]\n"                    /* 15 */
    "epochs = 5-6\n"                    /* 16 */
    "latency_ms = 50\n"                 /* 17 */
    "bandwidth_gbps = 1\n"              /* 18 */
    "loss_percent = 0.1\n";             /* 19 */

static void write_bytes(char path[64], const char *text, size_t bytes) {
  strcpy(path, "/tmp/weir-scenario-XXXXXX");
  const int file = mkstemp(path);
  cr_assert(file >= 0);
  cr_assert(write(file, text, bytes) == (ssize_t)bytes);
  close(file);
}

static void write_file(char path[64], const char *text) { write_bytes(path, text, strlen(text)); }

static weir_status read_text(weir_scenario *scenario, const char *text, char path[64]) {
  write_file(path, text);
  const weir_status status = weir_scenario_read(scenario, path);
  unlink(path);
  return status;
}

/* The good file with its first `from` replaced. */
static void expect_refused(const char *from, const char *to, int line, const char *words) {
  static weir_scenario scenario;
  char text[2048], path[64], place[96];
  const char *at = strstr(good, from);
  cr_assert_not_null(at);
  (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
  cr_assert_eq(read_text(&scenario, text, path), WEIR_E_PARSE, "%s accepted", to);
  (void)snprintf(place, sizeof place, "%s:%d: ", path, line);
  const char *message = weir_last_error();
  cr_assert_eq(strncmp(message, place, strlen(place)), 0, "'%s' does not begin with '%s'", message,
               place);
  cr_assert_not_null(strstr(message, words), "'%s' lacks '%s'", message, words);
  cr_assert_not_null(strstr(message, "; expected "), "%s", message);
}

Test(scenario, reads_what_is_written) {
  static weir_scenario s;
  char path[64];
  cr_assert_eq(read_text(&s, good, path), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(s.name, "two phases");
  cr_assert_eq(s.workers, 3);
  cr_assert_eq(s.epochs, 6);
  cr_assert_eq(s.decays, 2);
  cr_assert_eq(s.decay_epochs[1], 5);
  cr_assert_eq(s.first_epoch, 1);
  cr_assert_eq(s.phase_count, 2);
  cr_assert_eq(weir_scenario_phase(&s, 4), &s.phases[0]);
  cr_assert_eq(weir_scenario_phase(&s, 5), &s.phases[1]);
  weir_shape shape;
  weir_scenario_shape(&s, &s.phases[0], &shape);
  /* 25 Gbit/s halved is 12.5e9 bit/s, 1.5625e9 bytes a second. */
  cr_assert_float_eq(shape.rate_bytes_s, 1.5625e9, 1);
  cr_assert_float_eq(shape.delay_s, 0.001, 1e-12);
  weir_scenario_shape(&s, &s.phases[1], &shape);
  cr_assert_float_eq(shape.loss, 0.001, 1e-12);
}

/* 3-E1 of the paper; C2's "moderate" has no numbers there, and 10 ms and 10 Gbit/s here. */
Test(scenario, schedules_are_the_papers) {
  static const struct {
    const char *file;
    uint32_t first, last;
    double latency_s, gbps;
  } phases[] = {
      {"c1.ini", 1, 12, 1e-3, 25},   {"c1.ini", 13, 24, 1e-3, 1},   {"c1.ini", 25, 36, 50e-3, 1},
      {"c1.ini", 37, 50, 50e-3, 25}, {"c2.ini", 0, 11, 1e-3, 25},   {"c2.ini", 12, 19, 10e-3, 10},
      {"c2.ini", 20, 27, 50e-3, 1},  {"c2.ini", 28, 35, 10e-3, 10}, {"c2.ini", 36, 49, 1e-3, 25}};
  static weir_scenario s;
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    char path[512];
    (void)snprintf(path, sizeof path, WEIR_SCENARIOS "%s", phases[i].file);
    cr_assert_eq(weir_scenario_read(&s, path), WEIR_OK, "%s", weir_last_error());
    cr_assert_eq(s.epochs, 50);
    for (uint32_t epoch = phases[i].first; epoch <= phases[i].last; epoch++) {
      weir_shape shape;
      weir_scenario_shape(&s, weir_scenario_phase(&s, epoch), &shape);
      cr_assert_float_eq(shape.delay_s, phases[i].latency_s, 1e-12, "%s, epoch %u", path, epoch);
      cr_assert_float_eq(shape.rate_bytes_s / s.bandwidth_scale, phases[i].gbps * 1e9 / 8, 1e-3,
                         "%s, epoch %u", path, epoch);
    }
  }
}

Test(scenario, epochs_may_count_from_zero_and_phases_stand_in_any_order) {
  static weir_scenario s;
  char path[64];
  cr_assert_eq(
      read_text(&s,
                "[scenario]\nworkers=1\n[phase b]\nepochs=2\nlatency_ms=0\nbandwidth_gbps=1\n"
                "[phase a]\nepochs=0-1\nlatency_ms=0\nbandwidth_gbps=2\n"
                "[training]\nbatch=1\nlearning_rate=1\nepochs=3\n",
                path),
      WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(s.first_epoch, 0);
  cr_assert_str_eq(s.phases[0].name, "a");
}

Test(scenario, refuses_with_file_and_line) {
  expect_refused("workers = 3", "wrokers = 3", 4, "unknown key wrokers");
  expect_refused("workers = 3", "workers = 0", 4, "workers = 0");
  expect_refused("workers = 3", "workers = -1", 4, "workers = -1");
  expect_refused("workers = 3", "workers = 3x", 4, "3x");
  expect_refused("workers = 3", "workers = 99999999999999999999", 4, "workers");
  expect_refused("workers = 3\n", "workers = 3\nworkers = 4\n", 5, "appears twice");
  expect_refused("workers = 3\n", "", 2, "no key workers");
  expect_refused("[training]", "[traning]", 6, "unknown section [traning]");
  expect_refused("[training]", "[training", 6, "closing bracket");
  expect_refused("batch = 16", "batch", 7, "neither");
  expect_refused("batch = 16", "batch\x1b[2J = 16", 7, "no text");
  expect_refused("batch = 16", "batch = \xff", 7, "no text");
  expect_refused("batch = 16", "batch =", 7, "empty");
  expect_refused("learning_rate = 0.1", "learning_rate = nan", 8, "nan");
  expect_refused("bandwidth_scale = 0.5", "bandwidth_scale = inf", 5, "inf");
  expect_refused("decay_epochs = 3, 5", "decay_epochs = 5, 3", 10, "decay_epochs");
  expect_refused("decay_epochs = 3, 5", "decay_epochs = 3, 7", 10, "7");
  expect_refused("bandwidth_gbps = 25", "bandwidth_gbps = -25", 14, "-25");
  expect_refused("bandwidth_gbps = 25", "bandwidth_gbps = 0", 14, "bandwidth_gbps = 0");
  expect_refused("bandwidth_gbps = 25", "bandwidth_gbps = NaN", 14, "NaN");
  expect_refused("latency_ms = 1\n", "latency_ms = -1\n", 13, "latency_ms");
  expect_refused("epochs = 1-4", "epochs = 1-5", 15, "overlap in epoch 5");
  expect_refused("epochs = 1-4", "epochs = 1-3", 15, "no phase for epoch 4");
  expect_refused("epochs = 1-4", "epochs = 2-4", 11, "before 2");
  expect_refused("epochs = 1-4", "epochs = 4-1", 12, "4-1");
  expect_refused("epochs = 5-6", "epochs = 5-7", 15, "beyond");
  expect_refused("epochs = 5-6", "epochs = 5", 9, "no phase for epoch 6");
  expect_refused("[phase slow]", "[phase]", 15, "name");
  expect_refused("[phase slow]", "[trace]\nfile = x\nlatency_ms = 1\n[phase slow]", 11,
                 "[trace] are both given");
  expect_refused("[phase slow]", "[fault]\nkind=kill\nrank=3\nstep=1\n[phase slow]", 17, "rank 3");
  expect_refused("[phase slow]", "[fault]\nkind=bite\nrank=1\nstep=1\n[phase slow]", 16, "bite");
}

Test(scenario, a_model_brings_its_data_and_sizes) {
  static weir_scenario s;
  char path[64], text[2048];
  cr_assert_eq(read_text(&s, good, path), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(s.model, "mlp");
  cr_assert_str_eq(s.dataset, "fashion-mnist");
  cr_assert_str_eq(s.optimizer, "sgd");
  const char *rest = strstr(good, "batch");
  (void)snprintf(text, sizeof text,
                 "%.*smodel = gpt\nchannels = 64\noptimizer = adamw\nbeta2 = 0.95\n"
                 "rate_warmup_steps = 30\n%s",
                 (int)(rest - good), good, rest);
  cr_assert_eq(read_text(&s, text, path), WEIR_OK, "%s", weir_last_error());
  cr_assert_str_eq(s.dataset, "fortunes");
  cr_assert_str_eq(s.optimizer, "adamw");
  cr_assert_eq(s.sizes.layers, 3);
  cr_assert_eq(s.sizes.channels, 64);
  cr_assert_eq(s.sizes.context, 64);
  cr_assert_eq(s.beta2, 0.95);
  cr_assert_eq(s.rate_warmup_steps, 30);
}

Test(scenario, refuses_what_does_not_go_with_the_model) {
  const char *batch = "batch = 16";
  expect_refused(batch, "model = vgg\nbatch = 16", 7, "unknown model vgg");
  expect_refused(batch, "optimizer = adam\nbatch = 16", 7, "unknown optimizer adam");
  expect_refused(batch, "optimizer = adamw\ndivided_step = 1\nbatch = 16", 8, "cannot be divided");
  expect_refused(batch, "divided_step = 1\nbatch = 16", 7, "of optimizer sgd cannot be divided");
  expect_refused(batch, "optimizer = lamb\ndivided_step = 2\nbatch = 16", 8, "0 or 1");
  expect_refused(batch, "batch = 16\ndataset = fortunes", 8, "model mlp does not learn");
  expect_refused(batch, "batch = 16\nlayers = 2", 8, "model mlp has no layers");
  expect_refused(batch, "model = cnn\nbatch = 16\ncontext = 9", 9, "model cnn has no context");
  expect_refused(batch, "model = gpt\nbatch = 16\nslice = 9", 9, "model gpt has neither slices");
  expect_refused(batch, "model = gpt\nlayer_ms = 1\nbatch = 16", 8, "nor layer_ms");
  expect_refused(batch, "batch = 16\nbeta2 = 1", 8, "beta2 = 1");
  expect_refused(batch, "batch = 16\nrate_warmup_steps = -1", 8, "rate_warmup_steps = -1");
}

Test(scenario, refuses_a_file_without_network_or_without_anything) {
  static weir_scenario s;
  char path[64], place[96];
  cr_assert_eq(
      read_text(&s, "[scenario]\nworkers=1\n[training]\nbatch=1\nlearning_rate=1\nepochs=3\n",
                path),
      WEIR_E_PARSE);
  (void)snprintf(place, sizeof place, "%s:6: ", path);
  cr_assert_eq(strncmp(weir_last_error(), place, strlen(place)), 0, "%s", weir_last_error());
  cr_assert_eq(read_text(&s, "", path), WEIR_E_PARSE);
  cr_assert_eq(read_text(&s, "workers = 3\n", path), WEIR_E_PARSE);
  cr_assert_eq(weir_scenario_read(&s, "/nowhere/at/all.ini"), WEIR_E_IO);
  cr_assert_not_null(strstr(weir_last_error(), "/nowhere/at/all.ini: cannot be opened"));
}

Test(scenario, refuses_binary_and_endless_lines) {
  static weir_scenario s;
  char path[64], text[5000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  cr_assert_eq(read_text(&s, text, path), WEIR_E_PARSE);
  /* A zero in the last line, which has no end. */
  write_bytes(path, good, sizeof good - 2);
  cr_assert_eq(weir_scenario_read(&s, path), WEIR_OK, "%s", weir_last_error());
  unlink(path);
  memcpy(text, good, sizeof good);
  memcpy(text + sizeof good - 2, "\0junk", 5);
  write_bytes(path, text, sizeof good + 3);
  cr_assert_eq(weir_scenario_read(&s, path), WEIR_E_PARSE);
  cr_assert_not_null(strstr(weir_last_error(), ":19: the line is no text"));
  unlink(path);
}

/* --- traces --- */

static weir_status read_trace(weir_trace *trace, const char *text, char path[64]) {
  weir_trace_config config = {.interval_s = 0.5, .window_s = 1, .slot_bytes = 1500};
  write_file(path, text);
  strcpy(config.file, path);
  const weir_status status = weir_trace_read(trace, &config);
  unlink(path);
  return status;
}

Test(trace, counts_slots_in_a_sliding_window) {
  weir_trace trace;
  char path[64];
  cr_assert_eq(read_trace(&trace, "0\n100\n499\n500\n999\n1600\n2500\n", path), WEIR_OK, "%s",
               weir_last_error());
  cr_assert_eq(trace.intervals, 5);
  /* By hand: [0, 1000) holds 5 slots, [500, 1500) 2, [1000, 2000) 1, [1500, 2500) 1, [2000,
   * 3000) 1. */
  const double slots[] = {5, 2, 1, 1, 1};
  for (int i = 0; i < 5; i++) cr_assert_float_eq(trace.rate_bytes_s[i], 1500 * slots[i], 1e-9);
  cr_assert_float_eq(weir_trace_rate(&trace, 0.49), 7500, 1e-9);
  cr_assert_float_eq(weir_trace_rate(&trace, 0.5), 3000, 1e-9);
  cr_assert_float_eq(weir_trace_rate(&trace, 2.5), 7500, 1e-9); /* from the begin again */
  weir_trace_free(&trace);
}

/* 7500, 3000 and three times 1500 bytes/s, half a second each, twice as fast: from 0.4 s on 1500
 * bytes go before 0.5 s, 3000 before 1 s, and then 3000 a second; from 2.4 s on 300 before the
 * trace begins again. */
Test(trace, bytes_take_the_rates_that_they_meet) {
  weir_trace trace;
  char path[64];
  cr_assert_eq(read_trace(&trace, "0\n100\n499\n500\n999\n1600\n2500\n", path), WEIR_OK);
  cr_assert_float_eq(weir_trace_seconds(&trace, 2, 0.4, 1200), 0.08, 1e-12);
  cr_assert_float_eq(weir_trace_seconds(&trace, 2, 0.4, 5000), 0.6 + 0.5 / 3, 1e-12);
  cr_assert_float_eq(weir_trace_seconds(&trace, 2, 2.4, 1800), 0.2, 1e-12);
  cr_assert_float_eq(weir_trace_seconds(&trace, 2, 0.5, 3000), 0.5, 1e-12);
  cr_assert_eq(weir_trace_seconds(&trace, 2, 0.5, 0), 0);
  cr_assert_eq(weir_trace_seconds(&trace, 2, 0.5, NAN), 0);
  cr_assert_eq(weir_trace_seconds(&trace, 2, 0.5, INFINITY), INFINITY);
  /* A round of 2.5 s lets 7500 bytes pass; nobody counts its intervals one by one. */
  for (int power = 3; power <= 12; power += 9) {
    const double scale = pow(10, -power), due = 1e7 / (7500 * scale) * 2.5;
    cr_assert_float_eq(weir_trace_seconds(&trace, scale, 0, 1e7) / due, 1, 1e-6);
    cr_assert_float_eq(weir_trace_seconds(&trace, scale, due, 1e7) / due, 1, 1e-6);
  }
  weir_trace_free(&trace);
}

Test(trace, an_outage_still_has_a_rate) {
  weir_trace trace;
  char path[64];
  cr_assert_eq(read_trace(&trace, "0\n9000\n", path), WEIR_OK);
  cr_assert_float_eq(weir_trace_rate(&trace, 5), 1500, 1e-9); /* one slot a window, not 0 */
  weir_trace_free(&trace);
}

Test(trace, as_editors_of_other_systems_leave_it) {
  weir_trace trace;
  char path[64];
  cr_assert_eq(read_trace(&trace,
                          "\xEF\xBB\xBF"
                          "0\r\n9000\r\n",
                          path),
               WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(trace.intervals, 18);
  weir_trace_free(&trace);
}

Test(trace, refuses_bad_stamps) {
  weir_trace trace;
  char path[64];
  cr_assert_eq(read_trace(&trace, "1\r2\n", path), WEIR_E_PARSE);
  cr_assert_eq(read_trace(&trace,
                          "1\n\xEF\xBB\xBF"
                          "2\n",
                          path),
               WEIR_E_PARSE);
  cr_assert_eq(read_trace(&trace, "1\n2\nx\n", path), WEIR_E_PARSE);
  cr_assert_not_null(strstr(weir_last_error(), ":3: "));
  cr_assert_eq(read_trace(&trace, "5\n4\n", path), WEIR_E_PARSE);
  cr_assert_not_null(strstr(weir_last_error(), ":2: "));
  cr_assert_eq(read_trace(&trace, "-5\n", path), WEIR_E_PARSE);
  cr_assert_eq(read_trace(&trace, "", path), WEIR_E_PARSE);
  weir_trace_config config = {.file = "/nowhere", .interval_s = 1, .window_s = 1, .slot_bytes = 1};
  cr_assert_eq(weir_trace_read(&trace, &config), WEIR_E_IO);
  write_bytes(config.file, "1\n2\03", 5);
  cr_assert_eq(weir_trace_read(&trace, &config), WEIR_E_PARSE);
  cr_assert_not_null(strstr(weir_last_error(), ":2: "));
  unlink(config.file);
  static weir_scenario s; /* for neither is a pipe waited for */
  cr_assert_eq(mkfifo(config.file, 0600), 0);
  cr_assert_eq(weir_trace_read(&trace, &config), WEIR_E_IO);
  cr_assert_not_null(strstr(weir_last_error(), "(it is no regular file); expected a trace"));
  cr_assert_eq(weir_scenario_read(&s, config.file), WEIR_E_IO);
  unlink(config.file);
}
