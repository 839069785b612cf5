/* emulate.json: what was set, what flowed, and when (docs/reference/runs.md). */

#include "lab/doc.h"
#include "lab/emulate_private.h"
#include "lab/out.h"

static double end_s(const weir_emulation *run) {
  return g_array_index(run->sample_s, double, run->sample_s->len - 1);
}

static void add_settings(weir_doc *doc, const weir_emulation *run) {
  weir_doc_list(doc, "settings");
  for (guint i = 0; i < run->settings->len; i++) {
    const weir_emulate_setting *s = &g_array_index(run->settings, weir_emulate_setting, i);
    const bool last = i + 1 == run->settings->len;
    weir_doc_object(doc, NULL);
    weir_doc_text(doc, "phase", s->phase);
    weir_doc_number(doc, "begin_s", s->begin_s);
    weir_doc_number(doc, "end_s", last ? end_s(run) : (s + 1)->begin_s);
    weir_doc_number(doc, "latency_ms", s->shape.delay_s * 1e3);
    weir_doc_number(doc, "bandwidth_mbit_s", s->shape.rate_bytes_s * 8e-6);
    weir_doc_number(doc, "loss_percent", s->shape.loss * 100);
    weir_doc_number(doc, "reorder_percent", s->shape.reorder * 100);
    weir_doc_number(doc, "duplicate_percent", s->shape.duplicate * 100);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

static void add_workers(weir_doc *doc, const weir_emulation *run) {
  weir_doc_list(doc, "workers");
  for (uint32_t r = 0; r < run->emulate->scenario.workers; r++) {
    const weir_shaper_counters *last = weir_emulate_counted(run, run->sample_s->len - 1, r);
    const weir_shaper_counters *first = weir_emulate_counted(run, 0, r);
    char address[WEIR_ADDRESS_MAX];
    weir_topology_address((int)r, address);
    weir_doc_object(doc, NULL);
    weir_doc_text(doc, "address", address);
    weir_doc_whole(doc, "sent_bytes", last->sent_bytes - first->sent_bytes);
    weir_doc_whole(doc, "sent_packets", last->sent_packets - first->sent_packets);
    weir_doc_whole(doc, "dropped_packets", last->dropped_packets - first->dropped_packets);
    weir_doc_whole(doc, "received_bytes", last->received_bytes - first->received_bytes);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

static void add_processes(weir_doc *doc, const weir_emulation *run) {
  weir_doc_list(doc, "processes");
  for (uint32_t p = 0; p < run->processes; p++) {
    weir_doc_object(doc, NULL);
    weir_doc_whole(doc, "exit_code", run->process[p].code);
    weir_doc_flag(doc, "put_down", run->process[p].put_down);
    weir_doc_number(doc, "ended_s", run->process[p].ended_s);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

/* Bytes of all workers from the sample before to this one. */
static void add_bytes(weir_doc *doc, const char *name, const weir_emulation *run, guint sample,
                      bool sent) {
  weir_doc_list(doc, name);
  for (uint32_t r = 0; r < run->emulate->scenario.workers; r++) {
    const weir_shaper_counters *now = weir_emulate_counted(run, sample, r),
                               *before = weir_emulate_counted(run, sample - 1, r);
    weir_doc_whole(
        doc, NULL,
        sent ? now->sent_bytes - before->sent_bytes : now->received_bytes - before->received_bytes);
  }
  weir_doc_end_list(doc);
}

static void add_samples(weir_doc *doc, const weir_emulation *run) {
  weir_doc_list(doc, "samples");
  for (guint i = 1; i < run->sample_s->len; i++) {
    weir_doc_object(doc, NULL);
    weir_doc_number(doc, "begin_s", g_array_index(run->sample_s, double, i - 1));
    weir_doc_number(doc, "end_s", g_array_index(run->sample_s, double, i));
    add_bytes(doc, "sent_bytes", run, i, true);
    add_bytes(doc, "received_bytes", run, i, false);
    weir_doc_end(doc);
  }
  weir_doc_end_list(doc);
}

static void add_head(weir_doc *doc, const weir_emulation *run, int exit_code) {
  static const char *const launchers[] = {"none", "torchrun", "mpirun"};
  const weir_emulate *e = run->emulate;
  weir_doc_whole(doc, "format", WEIR_EMULATE_VERSION);
  weir_doc_text(doc, "scenario", e->scenario.name);
  weir_doc_text(doc, "network", weir_emulate_network(e));
  weir_doc_text(doc, "launcher", launchers[e->launcher]);
  weir_doc_list(doc, "command");
  for (char **word = e->options.command; *word; word++) weir_doc_text(doc, NULL, *word);
  weir_doc_end_list(doc);
  weir_doc_number(doc, "elapsed_s", end_s(run));
  weir_doc_number(doc, "schedule_begin_s", run->schedule_begin_s);
  weir_doc_text(doc, "outcome",
                run->interrupted ? "interrupted"
                : run->timed_out ? "timed out"
                                 : "done");
  weir_doc_whole(doc, "exit_code", exit_code);
}

weir_status weir_emulate_write(const weir_emulation *run, int exit_code) {
  g_autoptr(JsonBuilder) doc = json_builder_new();
  weir_doc_object(doc, NULL);
  add_head(doc, run, exit_code);
  add_settings(doc, run);
  add_workers(doc, run);
  add_processes(doc, run);
  add_samples(doc, run);
  g_autofree char *text = weir_doc_lines(doc);
  return weir_out_write(run->emulate->out, "emulate.json", text);
}
