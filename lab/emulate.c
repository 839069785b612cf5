#include "lab/emulate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/emulate_private.h"
#include "lab/out.h"
#include "lab/report.h"
#include "lab/runner_private.h"
#include "lab/stage.h"

/* --- prepare ---------------------------------------------------------------------------------- */

static weir_status choose(const char *option, const char *text, const char *const *names,
                          const char *expected, int *chosen) {
  for (*chosen = 0; names[*chosen]; ++*chosen)
    if (!strcmp(text ? text : names[0], names[*chosen])) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID, "command line: --%s %s is unknown; expected %s", option, text,
                   expected);
}

static weir_status apply_options(weir_emulate *e) {
  static const char *const networks[] = {"auto", "tc", "uml", NULL};
  static const char *const launchers[] = {"none", "torchrun", "mpirun", NULL};
  int network, launcher;
  weir_status status = choose("network", e->options.network, networks, "auto, tc or uml", &network);
  if (!status)
    status =
        choose("launcher", e->options.launcher, launchers, "none, torchrun or mpirun", &launcher);
  if (status) return status;
  e->auto_network = network == 0;
  e->uml = network == 2;
  e->launcher = (weir_launcher)launcher;
  if (e->options.workers >= 0) e->scenario.workers = (uint32_t)e->options.workers;
  return WEIR_OK;
}

static weir_status unavailable(const char *network, const char *said) {
  g_autofree char *why = g_strdup(said);
  return weir_fail(WEIR_E_UNSUPPORTED, "network %s is not available: %s", network, why);
}

static weir_status choose_network(weir_emulate *e) {
  char why[512];
  g_autofree char *lacks = NULL;
  if (!e->uml) {
    const weir_schedule schedule = {&e->scenario, &e->trace};
    if (!weir_tc_probe(weir_schedule_needs_netem(&schedule))) return WEIR_OK;
    if (!e->auto_network) {
      g_autofree char *hint =
          g_strdup_printf("%s; --network auto takes one that is", weir_last_error());
      return unavailable("tc", hint);
    }
    lacks = g_strdup_printf("tc: %s", weir_last_error());
  }
  if (!weir_uml_available(WEIR_UML_CLOCK_REAL, why)) {
    g_autofree char *both = lacks ? g_strdup_printf("%s; %s", why, lacks) : g_strdup(why);
    return unavailable("uml", both);
  }
  e->uml = true;
  if (lacks) e->lacks = g_strdup_printf("network: uml (%s)", lacks);
  return WEIR_OK;
}

static weir_status check_out(const weir_emulate *e) {
  const char *trace = e->scenario.trace.file;
  weir_status status = weir_out_check(e->out);
  if (!status) status = weir_out_spares(e->out, "scenario", e->options.scenario);
  return status || !*trace ? status : weir_out_spares(e->out, "trace", trace);
}

/* A file that is to be had in the host's /dev/shm, which no machine sees: as a word of the command,
 * or behind the "=" of one. */
static weir_status check_command(const weir_emulate *e) {
  for (char **word = e->options.command; *word; word++) {
    const char *value = strchr(*word, '=');
    const char *path = **word == '/' || !value ? *word : value + 1;
    if (g_str_has_prefix(path, "/dev/shm/") && !access(path, F_OK))
      return weir_fail(WEIR_E_INVALID,
                       "command line: %s: each machine has a /dev/shm of its own, in which it is "
                       "not; expected files of the command elsewhere",
                       *word);
  }
  return WEIR_OK;
}

weir_status weir_emulate_prepare(weir_emulate **out, const weir_emulate_options *options) {
  *out = NULL;
  weir_emulate *e = calloc(1, sizeof *e);
  if (!e) return weir_fail(WEIR_E_NOMEM, "no memory to emulate");
  e->options = *options;
  e->lock = -1;
  e->out = options->out ? g_canonicalize_filename(options->out, NULL) : NULL;
  e->result =
      mmap(NULL, sizeof *e->result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  weir_status status =
      e->result != MAP_FAILED ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory to emulate");
  if (!status) status = weir_scenario_read_network(&e->scenario, options->scenario);
  if (!status) status = apply_options(e);
  if (!status) status = weir_trace_of(&e->trace, &e->scenario);
  const weir_schedule schedule = {&e->scenario, &e->trace};
  if (!status) status = weir_schedule_check(&schedule);
  if (!status && e->out) status = check_out(e);
  if (!status) status = check_command(e);
  if (!status) status = choose_network(e);
  if (status) {
    weir_emulate_free(e);
    return status;
  }
  *out = e;
  return WEIR_OK;
}

weir_status weir_emulate_open(weir_emulate *e) {
  enum { ROOM = 65536 };
  if (!e->out || e->options.inside_uml) return WEIR_OK; /* the outer run has done it */
  const weir_status status = weir_out_open(e->out, &e->lock);
  /* Also tells the next run that the logs are not a user's, should this one be killed. */
  return status ? status : weir_out_reserve(e->out, "emulate.json", ROOM);
}

void weir_emulate_free(weir_emulate *e) {
  if (!e) return;
  weir_out_close(e->lock);
  weir_trace_free(&e->trace);
  if (e->result && e->result != MAP_FAILED) (void)munmap(e->result, sizeof *e->result);
  g_free(e->out);
  g_free(e->lacks);
  free(e);
}

/* --- the schedule ----------------------------------------------------------------------------- */

double weir_emulate_phase_begin(const weir_emulate *e, size_t phase) {
  const weir_scenario *s = &e->scenario;
  double begin = 0;
  for (size_t i = 0; i < phase; i++) {
    const weir_phase *p = &s->phases[i];
    begin += weir_scenario_is_timed(s) ? p->seconds
                                       : e->options.epoch_s * (p->last_epoch - p->first_epoch + 1);
  }
  return begin;
}

/* Which phase is in force when: in words, since an epoch is nothing to a program. */
static void say_schedule(weir_emulate *e) {
  const weir_scenario *s = &e->scenario;
  if (!s->phase_count) return;
  g_autoptr(GString) text = g_string_new("phases:");
  for (size_t i = 0; i < s->phase_count; i++)
    g_string_append_printf(text, " %s from %g s,", s->phases[i].name,
                           weir_emulate_phase_begin(e, i));
  g_string_append_printf(text, " which lasts until the command ends");
  if (e->options.await_traffic)
    g_string_append_printf(text, "; from when a worker has sent a megabyte");
  if (!weir_scenario_is_timed(s))
    g_string_append_printf(text, " (an epoch counts as %g s)", e->options.epoch_s);
  weir_progress_say(&e->progress, text->str);
}

/* --- execute ---------------------------------------------------------------------------------- */

const char *weir_emulate_network(const weir_emulate *e) {
  return e->uml || e->options.inside_uml ? "uml" : "tc";
}

static weir_status report(const weir_emulate *e, weir_status status) {
  if (!e->out || e->options.inside_uml) return status;
  g_autofree char *told = g_build_filename(e->out, "emulate.json", NULL);
  if (status && (status != WEIR_E_STATE || access(told, F_OK))) {
    weir_out_empty(e->out);
    return status;
  }
  g_autofree char *why = g_strdup(status ? weir_last_error() : "");
  const weir_status drawn = weir_emulate_report_write(e->out);
  return status ? weir_fail(status, "%s", why) : drawn;
}

weir_status weir_emulate_execute(weir_emulate *e, int *exit_code) {
  *exit_code = 1;
  weir_progress_begin(&e->progress,
                      e->options.relay ? WEIR_PROGRESS_RELAY : weir_progress_style_here(),
                      &e->scenario, 1);
  weir_status status = WEIR_OK;
  if (e->lacks) weir_progress_say(&e->progress, e->lacks);
  if (!e->options.inside_uml) say_schedule(e);
  if (e->uml) {
    status = weir_emulate_uml(e, exit_code);
  } else {
    status = weir_stage_run(weir_emulate_tc, e);
    *exit_code = e->result->exit_code;
  }
  weir_progress_end(&e->progress);
  return report(e, status);
}
