#include "lab/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "lab/channel.h"

#define TICK_MS 100
#define EPOCH_ASIDE UINT32_MAX /* the network is set again in the middle of an epoch */

/* How long survivors may take to end by themselves once one has failed: a time-out to notice, one
 * more when that was in a nested wait, and a little to say so. */
static double grace(const weir_supervisor *supervisor) { return 2 * supervisor->timeout_s + 2; }
/* No worker says anything for so long: evaluation is the longest silent work. */
static double silence(const weir_supervisor *supervisor) { return 60 + 6 * supervisor->timeout_s; }
/* A turn of the watch takes a tick: one that took so long was not its own doing. */
static const double standstill_s = 10;

static void fail_member(weir_supervisor *supervisor, weir_supervisor_member *member,
                        const char *why) {
  if (!*member->trouble) (void)snprintf(member->trouble, sizeof member->trouble, "%s", why);
  if (supervisor->failed_at <= 0) supervisor->failed_at = weir_now_s();
}

/* --- what workers say ------------------------------------------------------------------------- */

static weir_status set_network(weir_supervisor *supervisor, uint32_t epoch) {
  if (!supervisor->network.set) return WEIR_OK;
  const double now = weir_now_s();
  if (supervisor->began <= 0) supervisor->began = now - supervisor->elapsed_s;
  supervisor->last_set = now;
  return supervisor->network.set(supervisor->network.user, epoch, now - supervisor->began,
                                 &supervisor->in_force);
}

static weir_status take_row(weir_supervisor *supervisor, weir_row *row) {
  if (supervisor->network.set) {
    row->set_latency_s = supervisor->in_force.delay_s;
    row->set_bandwidth = supervisor->in_force.rate_bytes_s;
  }
  weir_progress_row(supervisor->progress, row);
  return weir_steplog_add(supervisor->log, row);
}

/* Whether that has worked is rank 0's to make something of. */
static weir_status keep_log(weir_supervisor *supervisor, uint32_t rank, weir_message *message) {
  *message = (weir_message){.kind = WEIR_MESSAGE_READY};
  message->as.error.status = weir_steplog_keep(supervisor->log, supervisor->out, supervisor->run);
  (void)snprintf(message->as.error.text, sizeof message->as.error.text, "%s", weir_last_error());
  return weir_channel_send(supervisor->members[rank].channel, message, supervisor->timeout_s);
}

static weir_status take_message(weir_supervisor *supervisor, uint32_t rank, weir_message *message) {
  weir_supervisor_member *member = &supervisor->members[rank];
  weir_status status;
  supervisor->last_word = weir_now_s();
  switch ((weir_message_kind)message->kind) {
    case WEIR_MESSAGE_EPOCH:
      if ((status = set_network(supervisor, message->as.epoch))) return status;
      message->kind = WEIR_MESSAGE_READY;
      return weir_channel_send(member->channel, message, supervisor->timeout_s);
    case WEIR_MESSAGE_STEP: return take_row(supervisor, &message->as.row);
    case WEIR_MESSAGE_DONE:
      member->done = true;
      memcpy(supervisor->weights_sha256[rank], message->as.weights_sha256, 64);
      break;
    case WEIR_MESSAGE_ERROR:
      message->as.error.text[sizeof message->as.error.text - 1] = 0;
      fail_member(supervisor, member, message->as.error.text);
      break;
    case WEIR_MESSAGE_KEEP:
      if (rank == 0 && supervisor->out) return keep_log(supervisor, rank, message);
      return weir_fail(WEIR_E_PROTOCOL, "rank %u asks to keep what is not kept", rank);
    case WEIR_MESSAGE_READY:
    case WEIR_MESSAGE_MET:
      return weir_fail(WEIR_E_PROTOCOL, "rank %u sent a message that is not for the runner", rank);
  }
  if (!member->pid) member->ended = true;
  return WEIR_OK;
}

static weir_status drain(weir_supervisor *supervisor, uint32_t rank) {
  weir_supervisor_member *member = &supervisor->members[rank];
  for (;;) {
    weir_message message;
    weir_status status = weir_channel_receive(member->channel, &message, 0);
    if (status == WEIR_E_TIMEOUT) return WEIR_OK;
    if (status == WEIR_E_PEER) { /* why is for waitpid to say */
      (void)close(member->channel);
      member->channel = -1;
      if (member->pid || member->ended) return WEIR_OK;
      member->ended = member->died = true;
      fail_member(supervisor, member, "ended without saying why");
      return WEIR_OK;
    }
    if (status || (status = take_message(supervisor, rank, &message))) {
      /* A worker that is gone by the time it is answered is no failure of the runner. */
      if (status != WEIR_E_PEER) return status;
    }
  }
}

/* --- processes -------------------------------------------------------------------------------- */

static void note_end(weir_supervisor *supervisor, weir_supervisor_member *member, int code) {
  char why[128];
  member->ended = true;
  if (WIFSIGNALED(code) && member->stopped)
    (void)snprintf(why, sizeof why, "froze (stopped by a signal) and was ended by the runner");
  else if (WIFSIGNALED(code) && member->put_down)
    (void)snprintf(why, sizeof why, "did not end by itself and was ended by the runner");
  else if (WIFSIGNALED(code))
    (void)snprintf(why, sizeof why, "was killed by signal %d", WTERMSIG(code));
  else if (!member->done)
    (void)snprintf(why, sizeof why, "exited with code %d", WEXITSTATUS(code));
  else
    return;
  member->died = !*member->trouble;
  fail_member(supervisor, member, why);
}

/* It has gone on: unless somebody else is in trouble, nobody is asked to end any more. */
static void note_continued(weir_supervisor *supervisor, weir_supervisor_member *member) {
  member->stopped = false;
  for (uint32_t r = 0; r < supervisor->count; r++)
    if (supervisor->members[r].stopped || *supervisor->members[r].trouble) return;
  supervisor->failed_at = 0;
}

static weir_status reap(weir_supervisor *supervisor) {
  for (uint32_t r = 0; r < supervisor->count; r++) {
    weir_supervisor_member *member = &supervisor->members[r];
    if (!member->pid || member->ended) continue;
    int code;
    const pid_t got = waitpid(member->pid, &code, WNOHANG | WUNTRACED | WCONTINUED);
    if (got <= 0) continue;
    if (WIFSTOPPED(code)) {
      member->stopped = true;
      if (supervisor->failed_at <= 0) supervisor->failed_at = weir_now_s();
    } else if (WIFCONTINUED(code)) {
      note_continued(supervisor, member);
    } else {
      /* Its last words may still be in the channel. */
      weir_status status = member->channel >= 0 ? drain(supervisor, r) : WEIR_OK;
      if (status) return status;
      note_end(supervisor, member, code);
    }
  }
  return WEIR_OK;
}

static void put_down_all(weir_supervisor *supervisor) {
  for (uint32_t r = 0; r < supervisor->count; r++) {
    weir_supervisor_member *member = &supervisor->members[r];
    if (member->ended || member->put_down) continue;
    member->put_down = true;
    if (member->pid)
      (void)kill(member->pid, SIGKILL);
    else
      member->ended = true; /* a thread: its session's own time-outs end it */
  }
}

/* --- the watch -------------------------------------------------------------------------------- */

static bool all_ended(const weir_supervisor *supervisor) {
  for (uint32_t r = 0; r < supervisor->count; r++)
    if (!supervisor->members[r].ended) return false;
  return true;
}

static weir_status listen_once(weir_supervisor *supervisor, struct pollfd *wait, int signals) {
  for (uint32_t r = 0; r < supervisor->count; r++)
    wait[r] = (struct pollfd){.fd = supervisor->members[r].channel, .events = POLLIN};
  wait[supervisor->count] = (struct pollfd){.fd = signals, .events = POLLIN};
  if (poll(wait, supervisor->count + 1, TICK_MS) < 0 && errno != EINTR)
    return weir_fail(WEIR_E_IO, "poll: %s", strerror(errno));
  for (uint32_t r = 0; r < supervisor->count; r++) {
    if (!(wait[r].revents & (POLLIN | POLLHUP | POLLERR))) continue;
    weir_status status = drain(supervisor, r);
    if (status) return status;
  }
  if (wait[supervisor->count].revents & POLLIN) {
    struct signalfd_siginfo info;
    supervisor->interrupted = read(signals, &info, sizeof info) == (ssize_t)sizeof info;
  }
  return WEIR_OK;
}

void weir_supervisor_turn(weir_supervisor *supervisor, double now) {
  const double stood = now - supervisor->turned;
  if (stood > standstill_s) {
    supervisor->last_word += stood;
    if (supervisor->failed_at > 0) supervisor->failed_at += stood;
  }
  supervisor->turned = now;
}

static weir_status supervise(weir_supervisor *supervisor, struct pollfd *wait, int signals) {
  while (!all_ended(supervisor)) {
    weir_status status = listen_once(supervisor, wait, signals);
    if (!status) status = reap(supervisor);
    const double now = weir_now_s();
    weir_supervisor_turn(supervisor, now);
    const weir_supervisor_network *network = &supervisor->network;
    if (!status && network->set && network->interval_s > 0 && supervisor->began > 0 &&
        now - supervisor->last_set >= network->interval_s)
      status = set_network(supervisor, EPOCH_ASIDE);
    if (status) return status;
    if (supervisor->interrupted) return weir_fail(WEIR_E_STATE, "interrupted");
    if (now - supervisor->last_word > silence(supervisor))
      return weir_fail(WEIR_E_TIMEOUT, "no worker said anything for %.0f s", silence(supervisor));
    if (supervisor->failed_at > 0 && now - supervisor->failed_at > grace(supervisor))
      put_down_all(supervisor);
  }
  return WEIR_OK;
}

/* Who dies draws errors from the others, and who hangs may only be their victim. */
static int blame(const weir_supervisor_member *member) {
  if (!*member->trouble) return 0;
  if (!member->died) return 2;
  return member->put_down && !member->stopped ? 1 : 3;
}

/* The one to blame and why, then what the others said. */
static weir_status verdict(const weir_supervisor *supervisor) {
  const weir_supervisor_member *members = supervisor->members;
  uint32_t culprit = 0;
  for (uint32_t r = 1; r < supervisor->count; r++)
    if (blame(&members[r]) > blame(&members[culprit])) culprit = r;
  if (!blame(&members[culprit])) {
    for (uint32_t r = 1; r < supervisor->count; r++)
      if (strcmp(supervisor->weights_sha256[r], supervisor->weights_sha256[0]))
        return weir_fail(WEIR_E_INTERNAL, "the weights of rank %u differ from those of rank 0", r);
    return WEIR_OK;
  }
  char text[480];
  size_t at = (size_t)snprintf(text, sizeof text, "worker %u%s %s", culprit,
                               members[culprit].died ? "" : ":", members[culprit].trouble);
  for (uint32_t r = 0; r < supervisor->count && at < sizeof text; r++)
    if (r != culprit && blame(&members[r]))
      at += (size_t)snprintf(text + at, sizeof text - at, "; rank %u: %s", r, members[r].trouble);
  return weir_fail(WEIR_E_PEER, "%s", text);
}

weir_status weir_supervisor_run(weir_supervisor *supervisor) {
  sigset_t mask;
  (void)sigemptyset(&mask);
  (void)sigaddset(&mask, SIGINT);
  (void)sigaddset(&mask, SIGTERM);
  const int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  struct pollfd *wait = calloc(supervisor->count + 1, sizeof *wait);
  weir_status status;
  if (signals < 0 || !wait)
    status = weir_fail(WEIR_E_NOMEM, "no descriptor or memory to supervise %u workers",
                       supervisor->count);
  else {
    supervisor->last_word = supervisor->turned = weir_now_s();
    status = supervise(supervisor, wait, signals);
  }
  if (status) put_down_all(supervisor);
  for (uint32_t r = 0; r < supervisor->count; r++)
    if (supervisor->members[r].pid && !supervisor->members[r].ended)
      (void)waitpid(supervisor->members[r].pid, NULL, 0);
  free(wait);
  if (signals >= 0) (void)close(signals);
  return status ? status : verdict(supervisor);
}
