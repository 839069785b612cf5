#include "lab/run_record.h"

#include <glib.h>
#include <inttypes.h>
#include <json-glib/json-glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/base.h"
#include "lab/doc.h"
#include "lab/out.h"
#include "lab/report_data.h"
#include "lab/runner.h"

#define FORMAT 1

char *weir_file_sha256(const char *path) {
  g_autofree char *text = NULL;
  gsize bytes;
  if (!g_file_get_contents(path, &text, &bytes, NULL)) return NULL;
  return g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)text, bytes);
}

/* --- the file --------------------------------------------------------------------------------- */

typedef struct text_member {
  const char *name;
  char **at;
} text_member;

#define TEXTS 6
static void texts_of(weir_run_record *r, text_member members[TEXTS]) {
  const text_member all[TEXTS] = {
      {"scenario", &r->scenario}, {"scenario_sha256", &r->scenario_sha256},
      {"policy", &r->policy},     {"risk", &r->risk},
      {"network", &r->network},   {"clock", &r->clock}};
  memcpy(members, all, sizeof all);
}

weir_status weir_run_record_write(const weir_run_record *record, const char *out) {
  weir_run_record r = *record;
  text_member members[TEXTS];
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_doc_object(doc, NULL);
  weir_doc_whole(doc, "format", FORMAT);
  weir_doc_text(doc, "weir", weir_version());
  texts_of(&r, members);
  for (size_t i = 0; i < TEXTS; i++) weir_doc_text(doc, members[i].name, *members[i].at);
  weir_doc_whole(doc, "workers", r.workers);
  /* Beyond 2^63 JSON's readers do not agree. */
  weir_doc_format(doc, "seed", "%" PRIu64, r.seed);
  weir_doc_format(doc, "run", "%" PRIu64, r.run);
  weir_doc_flag(doc, "profile", r.profile);
  g_autofree char *text = weir_doc_lines(doc);
  return weir_out_write(out, WEIR_OUT_RECORD, text);
}

static const char *text_in(JsonObject *o, const char *name) {
  return json_object_get_string_member_with_default(o, name, NULL);
}

static bool number_in(JsonObject *o, const char *name, uint64_t *value) {
  const char *text = text_in(o, name);
  return text && g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT64, value, NULL);
}

static weir_status parse(JsonObject *o, weir_run_record *r, const char *out) {
  text_member members[TEXTS];
  const char *version = text_in(o, "weir");
  const gint64 workers = json_object_get_int_member_with_default(o, "workers", 0);
  if (json_object_get_int_member_with_default(o, "format", 0) != FORMAT || !version ||
      strcmp(version, weir_version()))
    return weir_fail(WEIR_E_INVALID,
                     "--resume %s: the run was begun by Weir %s and this is Weir %s; expected the "
                     "same: let that one go on with it, or begin anew with --out",
                     out, version ? version : "(unknown)", weir_version());
  texts_of(r, members);
  for (size_t i = 0; i < TEXTS; i++) {
    *members[i].at = g_strdup(text_in(o, members[i].name));
    if (!*members[i].at) return weir_fail(WEIR_E_PARSE, "there is no %s", members[i].name);
  }
  if (!number_in(o, "seed", &r->seed) || !number_in(o, "run", &r->run) || workers < 1 ||
      workers > 4096)
    return weir_fail(WEIR_E_PARSE, "a number is missing");
  r->workers = (uint32_t)workers;
  r->profile = json_object_get_boolean_member_with_default(o, "profile", FALSE);
  return WEIR_OK;
}

static weir_status nothing_there(const char *out) {
  g_autofree char *summary = g_build_filename(out, "summary.json", NULL);
  if (access(out, F_OK))
    return weir_fail(WEIR_E_INVALID, "--resume %s: there is no such folder; expected that of a run",
                     out);
  if (!access(summary, F_OK))
    return weir_fail(WEIR_E_INVALID,
                     "--resume %s: the run there is finished; expected one that was ended before: "
                     "to train it again, use --out",
                     out);
  return weir_fail(WEIR_E_INVALID,
                   "--resume %s: no run has begun there; expected the folder of one that was ended "
                   "before it was finished: begin with --out",
                   out);
}

weir_status weir_run_record_read(weir_run_record *record, const char *out) {
  *record = (weir_run_record){0};
  g_autofree char *path = g_build_filename(out, WEIR_OUT_RECORD, NULL);
  g_autoptr(JsonParser) parser = json_parser_new();
  if (!g_file_test(path, G_FILE_TEST_IS_REGULAR)) return nothing_there(out);
  g_autofree char *text = NULL;
  gsize bytes = 0;
  JsonNode *root = g_file_get_contents(path, &text, &bytes, NULL) &&
                           !weir_json_hostile(text, bytes) &&
                           json_parser_load_from_data(parser, text, (gssize)bytes, NULL)
                       ? json_parser_get_root(parser)
                       : NULL;
  const bool object = root && JSON_NODE_HOLDS_OBJECT(root);
  weir_status status = object ? parse(json_node_get_object(root), record, out)
                              : weir_fail(WEIR_E_PARSE, "it is no JSON object");
  if (status == WEIR_E_PARSE) {
    g_autofree char *why = g_strdup(weir_last_error());
    status =
        weir_fail(WEIR_E_INVALID,
                  "%s: %s; expected what `weir run` has written: begin anew with --out", path, why);
  }
  if (status) weir_run_record_free(record);
  return status;
}

void weir_run_record_free(weir_run_record *record) {
  text_member members[TEXTS];
  texts_of(record, members);
  for (size_t i = 0; i < TEXTS; i++) g_free(*members[i].at);
  *record = (weir_run_record){0};
}

/* --- the command line ------------------------------------------------------------------------- */

static weir_status differs(const char *out, const char *what, const char *there, const char *here) {
  return weir_fail(
      WEIR_E_INVALID,
      "--resume %s: the run there has %s %s, not %s; expected the same, or nothing said "
      "of it: to train it otherwise, begin anew with --out",
      out, what, there, here);
}

static weir_status check_scenario(const weir_run_record *r, const weir_run_options *o) {
  const char *path = o->scenario ? o->scenario : r->scenario;
  g_autofree char *digest = weir_file_sha256(path);
  if (digest && !strcmp(digest, r->scenario_sha256)) return WEIR_OK;
  return weir_fail(WEIR_E_INVALID,
                   digest ? "--resume %s: %s is not the scenario that was begun there (%s), or has "
                            "been changed since; expected that: to train another, use --out"
                          : "--resume %s: %s cannot be read; expected the scenario that was begun "
                            "there (%s), which may be named where it lies now",
                   o->out, path, r->scenario);
}

static weir_status check_texts(const weir_run_record *r, const weir_run_options *o) {
  g_autofree char *policy = NULL;
  if (o->policy) {
    const weir_status status = weir_run_policy(o->policy, &policy);
    if (status) return status;
    if (strcmp(policy, r->policy)) return differs(o->out, "policy", r->policy, policy);
  }
  if (o->risk && strcmp(o->risk, r->risk)) return differs(o->out, "risk", r->risk, o->risk);
  if (o->network && strcmp(o->network, "auto") && strcmp(o->network, r->network))
    return differs(o->out, "network", r->network, o->network);
  if (o->clock && strcmp(o->clock, r->clock)) return differs(o->out, "clock", r->clock, o->clock);
  return WEIR_OK;
}

static weir_status check_numbers(const weir_run_record *r, const weir_run_options *o) {
  char there[32], here[32];
  if (o->workers >= 0 && (uint64_t)o->workers != r->workers) {
    (void)snprintf(there, sizeof there, "%" PRIu32, r->workers);
    (void)snprintf(here, sizeof here, "%" PRId64, o->workers);
    return differs(o->out, "workers:", there, here);
  }
  if (o->has_seed && o->seed != r->seed) {
    (void)snprintf(there, sizeof there, "%" PRIu64, r->seed);
    (void)snprintf(here, sizeof here, "%" PRIu64, o->seed);
    return differs(o->out, "seed", there, here);
  }
  if (o->profile && !r->profile) return differs(o->out, "no", "--profile", "one");
  return WEIR_OK;
}

weir_status weir_run_record_apply(const weir_run_record *r, weir_run_options *o) {
  weir_status status = check_scenario(r, o);
  o->run = r->run;
  if (status || o->inside_uml) return status; /* whose command line is the outer run's */
  status = check_texts(r, o);
  if (!status) status = check_numbers(r, o);
  if (!o->scenario) o->scenario = r->scenario;
  o->policy = r->policy;
  o->risk = r->risk;
  o->network = r->network;
  o->clock = r->clock;
  o->workers = r->workers;
  o->has_seed = true;
  o->seed = r->seed;
  o->profile = r->profile;
  return status;
}
