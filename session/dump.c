/* weir_dump: a session's status block as text, from whichever thread asks. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/numerals.h"
#include "session/state.h"

typedef struct dump {
  char text[4096];
  size_t filled;
} dump;

static void say(dump *d, const char *format, ...) WEIR_PRINTF(2, 3);
static void say(dump *d, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const locale_t before = weir_numerals_begin();
  const int put = vsnprintf(d->text + d->filled, sizeof d->text - d->filled, format, list);
  weir_numerals_end(before);
  va_end(list);
  const size_t room = sizeof d->text - d->filled - 1;
  if (put > 0) d->filled += (size_t)put < room ? (size_t)put : room;
}

static double age_s(uint64_t since_us) { return fmax(0, weir_now_s() - 1e-6 * (double)since_us); }

/* What may be of this very moment. */
static void say_live(dump *d, const weir_live *live) {
  char phase[9];
  weir_status_phase(live, phase);
  say(d, "rank: %d\n", atomic_load(&live->rank));
  say(d, "step: %llu\n", (unsigned long long)atomic_load(&live->step));
  say(d, "phase: %s\n", phase);
  say(d, "phase_s: %.6f\n", age_s(atomic_load(&live->phase_since_us)));
  const uint32_t waits = atomic_load_explicit(&live->waits, memory_order_acquire);
  say(d, "waits_for:");
  for (uint32_t i = 0; i < waits && i < WEIR_LIVE_PEERS; i++)
    say(d, " %d", atomic_load(&live->wait_peer[i]));
  say(d, waits > WEIR_LIVE_PEERS ? " and %u more\n" : "\n", waits - WEIR_LIVE_PEERS);
  say(d, "waits_s: %.6f\n", waits > 0 ? age_s(atomic_load(&live->wait_since_us)) : 0);
}

static void say_network(dump *d, const weir_status_facts *f) {
  say(d, "latency_ms: %.6g\n", 1e3 * f->latency_s);
  say(d, "bandwidth_gbps: %.6g\n", 8e-9 * f->bandwidth_bytes_s);
  say(d, "goodput_gbps: %.6g\n", 8e-9 * f->goodput_bytes_s);
  say(d, "own_latency_ms: %.6g\n", 1e3 * f->own_latency_s);
  say(d, "own_latency_error: %.3g\n", f->latency_error);
  say(d, "own_latency_age_s: %.3f\n", f->latency_age_s);
  say(d, "own_bandwidth_gbps: %.6g\n", 8e-9 * f->own_bandwidth_bytes_s);
  say(d, "own_bandwidth_error: %.3g\n", f->bandwidth_error);
  say(d, "own_bandwidth_age_s: %.3f\n", f->bandwidth_age_s);
}

static void say_step(dump *d, const weir_status_facts *f) {
  say(d, "steps: %llu\n", (unsigned long long)f->steps);
  say(d, "last_step_age_s: %.6f\n", f->steps > 0 ? weir_now_s() - f->time_s : 0);
  say(d, "last_step_ms: %.6f\n", 1e3 * f->step_s);
  say(d, "last_compute_ms: %.6f\n", 1e3 * f->compute_s);
  say(d, "last_compress_ms: %.6f\n", 1e3 * f->compress_s);
  say(d, "last_comm_ms: %.6f\n", 1e3 * f->comm_s);
  say(d, "last_exchange_ms: %.6f\n", 1e3 * f->exchange_s);
  say(d, "last_predicted_comm_ms: %.6f\n", 1e3 * f->predicted_comm_s);
  say(d, "last_overhead_ms: %.6f\n", 1e3 * f->overhead_s);
  say(d, "last_wire_bytes: %llu\n", (unsigned long long)f->wire_bytes);
  say(d, "last_gain: %.6f\n", f->gain);
}

/* Of the whole process, as the kernel counts. */
static double resident_bytes(void) {
  unsigned long long size = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  const bool read = file != NULL && fscanf(file, "%llu %llu", &size, &resident) == 2;
  if (file != NULL) (void)fclose(file);
  return read ? (double)resident * (double)sysconf(_SC_PAGESIZE) : 0;
}

static void say_facts(dump *d, const weir_status_facts *f) {
  char slow[160];
  weir_slow_say(&f->slow, slow, sizeof slow);
  say(d, "world_size: %d\n", f->world_size);
  say(d, "transport: %s\n", f->transport);
  say(d, "policy: %s\n", f->policy);
  say(d, "plan: %s\n", f->plan);
  say(d, "plan_groups: %u\n", f->buckets);
  say(d, "plan_steps: %llu\n", (unsigned long long)f->plan_steps);
  say(d, "trial: %s\n", f->trial ? "yes" : "no");
  say(d, "decision: %s\n", f->decision);
  say(d, "slow: %s\n", slow);
  say_network(d, f);
  say_step(d, f);
  say(d, "gradient_bytes: %llu\n", (unsigned long long)f->gradient_bytes);
  say(d, "process_resident_bytes: %.0f\n", resident_bytes());
  say(d, "ended: %s\n", f->failed != WEIR_OK ? weir_status_name((weir_status)f->failed) : "no");
}

static void to_stderr(void *user, const char *text) {
  (void)user;
  size_t at = 0, bytes = strlen(text);
  while (at < bytes) {
    const ssize_t put = write(STDERR_FILENO, text + at, bytes - at);
    if (put <= 0) return; /* nobody to tell */
    at += (size_t)put;
  }
}

weir_status weir_dump(const weir_session *session, weir_dump_fn write_text, void *user) {
  if (session == NULL) return weir_fail(WEIR_E_INVALID, "the session is NULL");
  const weir_status_block *block = session->inside.status.block;
  weir_status_facts facts;
  weir_status_rank none;
  size_t rows = 0;
  dump d = {.filled = 0};
  say(&d, "weir: %s\njob: %llu\npid: %d\n", WEIR_VERSION, (unsigned long long)block->job_id,
      block->pid);
  say_live(&d, &block->live);
  /* Its writer may have been stopped in the middle of a step's end: then there is this much. */
  if (weir_status_read(block, &facts, &none, 0, &rows))
    say_facts(&d, &facts);
  else
    say(&d, "facts: being written\n");
  (write_text != NULL ? write_text : to_stderr)(user, d.text);
  return WEIR_OK;
}
