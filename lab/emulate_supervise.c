/* While the ranks run: what they print, the network's changes, its counters, signals. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/emulate_private.h"

static const double sample_s = 1;
/* From asking processes to end to ending them. */
static const double patience_s = 5, again_s = 1;

/* --- what ranks print ------------------------------------------------------------------------- */

/* A line, with whose it is. */
static void print_line(weir_emulation *run, uint32_t rank) {
  weir_emulated *p = &run->process[rank];
  if (!run->emulate->options.quiet) {
    weir_progress_wipe(&run->emulate->progress);
    if (run->processes > 1) printf("[%" G_GUINT32_FORMAT "] ", rank);
    (void)fwrite(p->line, 1, p->held, stdout);
    (void)putchar('\n');
    (void)fflush(stdout);
  }
  p->held = 0;
}

static void take_text(weir_emulation *run, uint32_t rank, const char *text, size_t count) {
  weir_emulated *p = &run->process[rank];
  for (size_t i = 0; i < count; i++) {
    if (text[i] == '\n' || p->held == sizeof p->line) print_line(run, rank);
    if (text[i] != '\n') p->line[p->held++] = text[i];
  }
}

static weir_status keep(int log, const char *text, size_t count) {
  while (count) {
    const ssize_t n = write(log, text, count);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return weir_fail(WEIR_E_IO, "a rank's log cannot be written: %s",
                       strerror(n < 0 ? errno : ENOSPC));
    text += n;
    count -= (size_t)n;
  }
  return WEIR_OK;
}

/* Take what is there now, and no more: who prints without end, faster than it can be taken, must
 * not keep the runner from the network's changes, time-outs and signals. */
static weir_status drain(weir_emulation *run, uint32_t rank) {
  weir_emulated *p = &run->process[rank];
  char text[16384];
  int left = 0;
  if (p->output < 0 || ioctl(p->output, FIONREAD, &left)) return WEIR_OK;
  do {
    const ssize_t n = read(p->output, text, sizeof text);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return WEIR_OK;
    if (n <= 0) {
      (void)close(p->output);
      p->output = -1;
      return WEIR_OK;
    }
    take_text(run, rank, text, (size_t)n);
    const weir_status status = p->log >= 0 ? keep(p->log, text, (size_t)n) : WEIR_OK;
    if (status) return status;
    left -= (int)n;
  } while (left > 0);
  return WEIR_OK;
}

/* --- the network ------------------------------------------------------------------------------ */

static weir_status put_in_force(weir_emulation *run, double time_s, const char *phase,
                                const weir_shape *shape) {
  if (run->settings->len && weir_shape_equal(shape, &run->in_force)) return WEIR_OK;
  const weir_status status = weir_topology_shape(run->topology, shape);
  if (status) return status;
  run->in_force = *shape;
  const weir_emulate_setting setting = {time_s, phase, *shape};
  g_array_append_val(run->settings, setting);
  if (!*phase || run->emulate->options.relay) return WEIR_OK;
  g_autofree char *line = g_strdup_printf("%.1f s: phase %s: %g ms, %g Mbit/s", time_s, phase,
                                          shape->delay_s * 1e3, shape->rate_bytes_s * 8e-6);
  weir_progress_say(&run->emulate->progress, line);
  return WEIR_OK;
}

weir_status weir_emulate_set(weir_emulation *run, double time_s) {
  const weir_emulate *e = run->emulate;
  const weir_scenario *s = &e->scenario;
  const weir_schedule schedule = {s, &e->trace};
  const double begin = run->schedule_begin_s; /* until then it is as at its begin */
  const double into = fmax(time_s - begin, 0);
  weir_shape shape;
  if (!s->phase_count) {
    run->next_change = begin + (floor(into / s->trace.interval_s + 1e-9) + 1) * s->trace.interval_s;
    weir_schedule_shape(&schedule, 0, into + 1e-9, &shape);
    return put_in_force(run, time_s, "", &shape);
  }
  while (run->phase + 1 < s->phase_count && weir_emulate_phase_begin(e, run->phase + 1) <= into)
    run->phase++;
  const weir_phase *phase = &s->phases[run->phase];
  run->next_change = run->phase + 1 < s->phase_count
                         ? begin + weir_emulate_phase_begin(e, run->phase + 1)
                         : INFINITY;
  weir_scenario_shape(s, phase, &shape);
  return put_in_force(run, time_s, phase->name, &shape);
}

/* --- how it goes ------------------------------------------------------------------------------ */

const weir_shaper_counters *weir_emulate_counted(const weir_emulation *run, guint sample,
                                                 uint32_t rank) {
  return &g_array_index(run->counters, weir_shaper_counters,
                        (size_t)sample * run->emulate->scenario.workers + rank);
}

/* Since the sample before: Mbit/s of a few workers, and when the schedule ends. */
static void show(weir_emulation *run, double time_s) {
  enum { SHOWN = 8 };
  weir_emulate *e = run->emulate;
  const guint last = run->sample_s->len - 1;
  const double passed = time_s - g_array_index(run->sample_s, double, last - 1);
  const uint32_t workers = e->scenario.workers;
  uint32_t running = 0;
  for (uint32_t p = 0; p < run->processes; p++) running += !run->process[p].ended;
  g_autoptr(GString) line = g_string_new(NULL);
  g_string_append_printf(line, "%d:%02d  set %g ms %g Mbit/s  sent Mbit/s", (int)(time_s / 60),
                         (int)fmod(time_s, 60), run->in_force.delay_s * 1e3,
                         run->in_force.rate_bytes_s * 8e-6);
  for (uint32_t r = 0; r < MIN(workers, SHOWN); r++)
    g_string_append_printf(line, " %.4g",
                           (double)(weir_emulate_counted(run, last, r)->sent_bytes -
                                    weir_emulate_counted(run, last - 1, r)->sent_bytes) *
                               8e-6 / passed);
  if (workers > SHOWN) g_string_append(line, " ...");
  g_string_append_printf(line, "  %u of %u run", running, run->processes);
  const double left =
      e->scenario.phase_count
          ? run->schedule_begin_s + weir_emulate_phase_begin(e, e->scenario.phase_count) - time_s
          : 0;
  if (!isfinite(run->schedule_begin_s))
    g_string_append(line, "  schedule waits for traffic");
  else if (left > 0)
    g_string_append_printf(line, "  schedule ETA %d:%02d", (int)(left / 60), (int)fmod(left, 60));
  weir_progress_show(&e->progress, line->str);
}

/* Ranks that only meet send some kilobytes: what sends a megabyte has begun with its work. */
static void begin_schedule(weir_emulation *run, double time_s) {
  static const uint64_t begun = 1000000;
  const guint last = run->sample_s->len - 1;
  for (uint32_t r = 0; r < run->emulate->scenario.workers; r++) {
    if (weir_emulate_counted(run, last, r)->sent_bytes -
            weir_emulate_counted(run, 0, r)->sent_bytes <
        begun)
      continue;
    run->schedule_begin_s = run->next_change = time_s;
    if (run->emulate->options.relay) return;
    g_autofree char *line = g_strdup_printf("%.1f s: the schedule begins", time_s);
    weir_progress_say(&run->emulate->progress, line);
    return;
  }
}

weir_status weir_emulate_sample(weir_emulation *run, double time_s) {
  for (uint32_t r = 0; r < run->emulate->scenario.workers; r++) {
    weir_shaper_counters read;
    const weir_status status = weir_topology_count(run->topology, (int)r, &read);
    if (status) return status;
    g_array_append_val(run->counters, read);
  }
  g_array_append_val(run->sample_s, time_s);
  if (!isfinite(run->schedule_begin_s)) begin_schedule(run, time_s);
  if (run->sample_s->len > 1) show(run, time_s);
  return WEIR_OK;
}

/* --- supervising ------------------------------------------------------------------------------ */

typedef struct supervision {
  weir_emulation *run;
  int signals;
  struct pollfd *wait;
  double next_sample, put_down_at, kill_at, again_at;
} supervision;

static void signal_all(weir_emulation *run, int number) {
  for (uint32_t p = 0; p < run->processes; p++) {
    weir_emulated *process = &run->process[p];
    if (process->ended) continue;
    process->put_down = true;
    (void)kill(-process->pid, number); /* each is its own session, and group */
  }
}

/* Ask them to end, and see to it after a while. */
static void put_down(supervision *w, int number, double now) {
  w->put_down_at = INFINITY;
  if (isfinite(w->kill_at)) return;
  signal_all(w->run, number);
  w->kill_at = now + patience_s;
  w->again_at = now + again_s;
}

/* A terminal sends it to every process of the runner, and they pass it on: that is one wish.  A
 * later one is another: not to wait any longer. */
static void take_wish(supervision *w, int number, double now) {
  w->run->interrupted = true;
  if (isfinite(w->kill_at) && now >= w->again_at) w->kill_at = now;
  put_down(w, number, now);
}

static bool all_ended(const weir_emulation *run) {
  for (uint32_t p = 0; p < run->processes; p++)
    if (!run->process[p].ended) return false;
  return true;
}

/* User-Mode Linux maps a process's memory on the host page by page, and ends one of which the host
 * maps no more.  Its log alone says so. */
static bool host_maps_no_more(void) {
  enum { READ_ALL = 3, NEWEST = 65536 };
  g_autofree char *said = g_malloc(NEWEST + 1);
  const int length = klogctl(READ_ALL, said, NEWEST);
  said[MAX(length, 0)] = 0;
  return strstr(said, "out of memory on the host side") || strstr(said, "fix_range_common: failed");
}

/* Of what failed by itself: who has not looked at the logs finds it here. */
static void say_failed(const weir_emulation *run, uint32_t rank) {
  const weir_emulated *process = &run->process[rank];
  weir_emulate *e = run->emulate;
  g_autoptr(GString) line = g_string_new(NULL);
  g_string_append_printf(line, "%.1f s: ", process->ended_s);
  if (run->processes > 1)
    g_string_append_printf(line, "rank %" G_GUINT32_FORMAT, rank);
  else
    g_string_append(line, "the command");
  if (process->code > 128 && process->code <= 128 + SIGRTMAX) /* 255 is what exit(-1) ends with */
    g_string_append_printf(line, " was ended by signal %d", process->code - 128);
  else
    g_string_append_printf(line, " ended with exit code %d", process->code);
  if (process->code == 128 + SIGKILL && e->options.inside_uml)
    g_string_append(line, host_maps_no_more()
                              ? ", as the host maps no more of its memory, which User-Mode Linux "
                                "has in pieces there: `sysctl -w vm.max_map_count=1000000` on the "
                                "host lets it"
                              : ", as the kernel of User-Mode Linux ends what has no memory left: "
                                "--memory-mib gives it more");
  weir_progress_say(&e->progress, line->str);
}

/* This is process 1 here: orphans are for it to reap. */
static void reap(supervision *w, double now) {
  int code;
  for (pid_t pid; (pid = waitpid(-1, &code, WNOHANG)) > 0;)
    for (uint32_t p = 0; p < w->run->processes; p++) {
      weir_emulated *process = &w->run->process[p];
      if (process->ended || process->pid != pid) continue; /* an orphan may have its number */
      process->ended = true;
      process->ended_s = now;
      process->code = WIFSIGNALED(code) ? 128 + WTERMSIG(code) : WEXITSTATUS(code);
      if (!process->code || process->put_down) continue;
      say_failed(w->run, p);
      if (!isfinite(w->put_down_at)) w->put_down_at = now + w->run->emulate->options.grace_s;
    }
}

static weir_status listen_once(supervision *w, double now) {
  weir_emulation *run = w->run;
  const double limit = run->emulate->options.timeout_s;
  const double time_is_up = limit > 0 && !run->timed_out ? limit : INFINITY;
  const double until = fmin(fmin(fmin(run->next_change, w->next_sample), time_is_up),
                            fmin(w->put_down_at, w->kill_at)) -
                       now;
  for (uint32_t p = 0; p < run->processes; p++)
    w->wait[p] = (struct pollfd){.fd = run->process[p].output, .events = POLLIN};
  w->wait[run->processes] = (struct pollfd){.fd = w->signals, .events = POLLIN};
  const int ms = (int)ceil(1e3 * fmin(fmax(until, 0), 1));
  if (poll(w->wait, run->processes + 1, ms) < 0 && errno != EINTR)
    return weir_fail(WEIR_E_IO, "poll: %s", strerror(errno));
  for (uint32_t p = 0; p < run->processes; p++) {
    const weir_status status = w->wait[p].revents ? drain(run, p) : WEIR_OK;
    if (status) return status;
  }
  struct signalfd_siginfo info;
  while (read(w->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;
    take_wish(w, (int)info.ssi_signo, weir_now_s() - run->begin);
  }
  return WEIR_OK;
}

static void say_time_is_up(weir_emulation *run, double now) {
  uint32_t left = 0;
  for (uint32_t p = 0; p < run->processes; p++) left += !run->process[p].ended;
  g_autofree char *line = g_strdup_printf(
      "%.1f s: the time of --timeout-s is up; %u of %u rank%s had not ended, and %s ended now", now,
      left, run->processes, run->processes == 1 ? "" : "s", left == 1 ? "is" : "are");
  weir_progress_say(&run->emulate->progress, line);
}

static weir_status turn(supervision *w) {
  weir_emulation *run = w->run;
  const double limit = run->emulate->options.timeout_s;
  weir_status status = listen_once(w, weir_now_s() - run->begin);
  const double now = weir_now_s() - run->begin;
  reap(w, now);
  if (!status && now >= run->next_change) status = weir_emulate_set(run, now);
  if (!status && now >= w->next_sample) {
    status = weir_emulate_sample(run, now);
    w->next_sample = fmax(w->next_sample + sample_s, now);
  }
  if (limit > 0 && now >= limit && !run->timed_out) {
    run->timed_out = true;
    w->put_down_at = now;
    say_time_is_up(run, now);
  }
  if (now >= w->put_down_at) put_down(w, SIGTERM, now);
  if (now >= w->kill_at) {
    signal_all(run, SIGKILL);
    w->kill_at = now + patience_s;
  }
  return status;
}

static weir_status supervise_all(supervision *w) {
  weir_emulation *run = w->run;
  weir_status status = WEIR_OK;
  while (!status && !all_ended(run)) status = turn(w);
  for (uint32_t p = 0; !status && p < run->processes; p++) {
    status = drain(run, p);
    if (run->process[p].held) print_line(run, p);
  }
  return status ? status : weir_emulate_sample(run, weir_now_s() - run->begin);
}

weir_status weir_emulate_supervise(weir_emulation *run) {
  sigset_t mask;
  (void)sigemptyset(&mask);
  (void)sigaddset(&mask, SIGINT);
  (void)sigaddset(&mask, SIGTERM);
  (void)sigaddset(&mask, SIGCHLD);
  (void)sigprocmask(SIG_BLOCK, &mask, NULL);
  supervision w = {.run = run,
                   .signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK),
                   .wait = g_new0(struct pollfd, run->processes + 1),
                   .next_sample = sample_s,
                   .put_down_at = INFINITY,
                   .kill_at = INFINITY};
  const weir_status status = w.signals < 0
                                 ? weir_fail(WEIR_E_NOMEM, "no descriptor to wait for signals")
                                 : supervise_all(&w);
  if (w.signals >= 0) (void)close(w.signals);
  g_free(w.wait);
  return status;
}
