#include "lab/crew.h"

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
static double grace(const weir_crew *crew) { return 2 * crew->timeout_s + 2; }
/* No worker says anything for so long: evaluation is the longest silent work. */
static double silence(const weir_crew *crew) { return 60 + 6 * crew->timeout_s; }
/* A turn of the watch takes a tick: one that took so long was not its own doing. */
static const double standstill_s = 10;

static void fail_member(weir_crew *crew, weir_crew_member *member, const char *why) {
  if (!*member->trouble) (void)snprintf(member->trouble, sizeof member->trouble, "%s", why);
  if (crew->failed_at <= 0) crew->failed_at = weir_now_s();
}

/* --- what workers say ------------------------------------------------------------------------- */

static weir_status set_network(weir_crew *crew, uint32_t epoch) {
  if (!crew->network.set) return WEIR_OK;
  const double now = weir_now_s();
  if (crew->began <= 0) crew->began = now;
  crew->last_set = now;
  return crew->network.set(crew->network.user, epoch, now - crew->began, &crew->in_force);
}

static weir_status take_row(weir_crew *crew, weir_row *row) {
  if (crew->network.set) {
    row->set_latency_s = crew->in_force.delay_s;
    row->set_bandwidth = crew->in_force.rate_bytes_s;
  }
  weir_progress_row(crew->progress, row);
  return weir_steplog_add(crew->log, row);
}

static weir_status take_message(weir_crew *crew, uint32_t rank, weir_message *message) {
  weir_crew_member *member = &crew->members[rank];
  weir_status status;
  crew->last_word = weir_now_s();
  switch ((weir_message_kind)message->kind) {
    case WEIR_MESSAGE_EPOCH:
      if ((status = set_network(crew, message->as.epoch))) return status;
      message->kind = WEIR_MESSAGE_READY;
      return weir_channel_send(member->channel, message, crew->timeout_s);
    case WEIR_MESSAGE_STEP: return take_row(crew, &message->as.row);
    case WEIR_MESSAGE_DONE:
      member->done = true;
      memcpy(crew->weights_sha256[rank], message->as.weights_sha256, 64);
      break;
    case WEIR_MESSAGE_ERROR:
      message->as.error.text[sizeof message->as.error.text - 1] = 0;
      fail_member(crew, member, message->as.error.text);
      break;
    case WEIR_MESSAGE_READY:
    case WEIR_MESSAGE_MET:
      return weir_fail(WEIR_E_PROTOCOL, "rank %u sent a message that is not for the runner", rank);
  }
  if (!member->pid) member->ended = true;
  return WEIR_OK;
}

static weir_status drain(weir_crew *crew, uint32_t rank) {
  weir_crew_member *member = &crew->members[rank];
  for (;;) {
    weir_message message;
    weir_status status = weir_channel_receive(member->channel, &message, 0);
    if (status == WEIR_E_TIMEOUT) return WEIR_OK;
    if (status == WEIR_E_PEER) { /* why is for waitpid to say */
      (void)close(member->channel);
      member->channel = -1;
      if (member->pid || member->ended) return WEIR_OK;
      member->ended = member->died = true;
      fail_member(crew, member, "ended without saying why");
      return WEIR_OK;
    }
    if (status || (status = take_message(crew, rank, &message))) {
      /* A worker that is gone by the time it is answered is no failure of the runner. */
      if (status != WEIR_E_PEER) return status;
    }
  }
}

/* --- processes -------------------------------------------------------------------------------- */

static void note_end(weir_crew *crew, weir_crew_member *member, int code) {
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
  fail_member(crew, member, why);
}

/* It has gone on: unless somebody else is in trouble, nobody is asked to end any more. */
static void note_continued(weir_crew *crew, weir_crew_member *member) {
  member->stopped = false;
  for (uint32_t r = 0; r < crew->count; r++)
    if (crew->members[r].stopped || *crew->members[r].trouble) return;
  crew->failed_at = 0;
}

static weir_status reap(weir_crew *crew) {
  for (uint32_t r = 0; r < crew->count; r++) {
    weir_crew_member *member = &crew->members[r];
    if (!member->pid || member->ended) continue;
    int code;
    const pid_t got = waitpid(member->pid, &code, WNOHANG | WUNTRACED | WCONTINUED);
    if (got <= 0) continue;
    if (WIFSTOPPED(code)) {
      member->stopped = true;
      if (crew->failed_at <= 0) crew->failed_at = weir_now_s();
    } else if (WIFCONTINUED(code)) {
      note_continued(crew, member);
    } else {
      /* Its last words may still be in the channel. */
      weir_status status = member->channel >= 0 ? drain(crew, r) : WEIR_OK;
      if (status) return status;
      note_end(crew, member, code);
    }
  }
  return WEIR_OK;
}

static void put_down_all(weir_crew *crew) {
  for (uint32_t r = 0; r < crew->count; r++) {
    weir_crew_member *member = &crew->members[r];
    if (member->ended || member->put_down) continue;
    member->put_down = true;
    if (member->pid)
      (void)kill(member->pid, SIGKILL);
    else
      member->ended = true; /* a thread: its session's own time-outs end it */
  }
}

/* --- the watch -------------------------------------------------------------------------------- */

static bool all_ended(const weir_crew *crew) {
  for (uint32_t r = 0; r < crew->count; r++)
    if (!crew->members[r].ended) return false;
  return true;
}

static weir_status listen_once(weir_crew *crew, struct pollfd *wait, int signals) {
  for (uint32_t r = 0; r < crew->count; r++)
    wait[r] = (struct pollfd){.fd = crew->members[r].channel, .events = POLLIN};
  wait[crew->count] = (struct pollfd){.fd = signals, .events = POLLIN};
  if (poll(wait, crew->count + 1, TICK_MS) < 0 && errno != EINTR)
    return weir_fail(WEIR_E_IO, "poll: %s", strerror(errno));
  for (uint32_t r = 0; r < crew->count; r++) {
    if (!(wait[r].revents & (POLLIN | POLLHUP | POLLERR))) continue;
    weir_status status = drain(crew, r);
    if (status) return status;
  }
  if (wait[crew->count].revents & POLLIN) {
    struct signalfd_siginfo info;
    crew->interrupted = read(signals, &info, sizeof info) == (ssize_t)sizeof info;
  }
  return WEIR_OK;
}

void weir_crew_turn(weir_crew *crew, double now) {
  const double stood = now - crew->turned;
  if (stood > standstill_s) {
    crew->last_word += stood;
    if (crew->failed_at > 0) crew->failed_at += stood;
  }
  crew->turned = now;
}

static weir_status watch(weir_crew *crew, struct pollfd *wait, int signals) {
  while (!all_ended(crew)) {
    weir_status status = listen_once(crew, wait, signals);
    if (!status) status = reap(crew);
    const double now = weir_now_s();
    weir_crew_turn(crew, now);
    const weir_crew_network *network = &crew->network;
    if (!status && network->set && network->interval_s > 0 && crew->began > 0 &&
        now - crew->last_set >= network->interval_s)
      status = set_network(crew, EPOCH_ASIDE);
    if (status) return status;
    if (crew->interrupted) return weir_fail(WEIR_E_STATE, "interrupted");
    if (now - crew->last_word > silence(crew))
      return weir_fail(WEIR_E_TIMEOUT, "no worker said anything for %.0f s", silence(crew));
    if (crew->failed_at > 0 && now - crew->failed_at > grace(crew)) put_down_all(crew);
  }
  return WEIR_OK;
}

/* Who dies draws errors from the others, and who hangs may only be their victim. */
static int blame(const weir_crew_member *member) {
  if (!*member->trouble) return 0;
  if (!member->died) return 2;
  return member->put_down && !member->stopped ? 1 : 3;
}

/* The one to blame and why, then what the others said. */
static weir_status verdict(const weir_crew *crew) {
  const weir_crew_member *members = crew->members;
  uint32_t culprit = 0;
  for (uint32_t r = 1; r < crew->count; r++)
    if (blame(&members[r]) > blame(&members[culprit])) culprit = r;
  if (!blame(&members[culprit])) {
    for (uint32_t r = 1; r < crew->count; r++)
      if (strcmp(crew->weights_sha256[r], crew->weights_sha256[0]))
        return weir_fail(WEIR_E_INTERNAL, "the weights of rank %u differ from those of rank 0", r);
    return WEIR_OK;
  }
  char text[480];
  size_t at = (size_t)snprintf(text, sizeof text, "worker %u%s %s", culprit,
                               members[culprit].died ? "" : ":", members[culprit].trouble);
  for (uint32_t r = 0; r < crew->count && at < sizeof text; r++)
    if (r != culprit && blame(&members[r]))
      at += (size_t)snprintf(text + at, sizeof text - at, "; rank %u: %s", r, members[r].trouble);
  return weir_fail(WEIR_E_PEER, "%s", text);
}

weir_status weir_crew_watch(weir_crew *crew) {
  sigset_t mask;
  (void)sigemptyset(&mask);
  (void)sigaddset(&mask, SIGINT);
  (void)sigaddset(&mask, SIGTERM);
  const int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  struct pollfd *wait = calloc(crew->count + 1, sizeof *wait);
  weir_status status;
  if (signals < 0 || !wait)
    status = weir_fail(WEIR_E_NOMEM, "no descriptor or memory to watch %u workers", crew->count);
  else {
    crew->last_word = crew->turned = weir_now_s();
    status = watch(crew, wait, signals);
  }
  if (status) put_down_all(crew);
  for (uint32_t r = 0; r < crew->count; r++)
    if (crew->members[r].pid && !crew->members[r].ended)
      (void)waitpid(crew->members[r].pid, NULL, 0);
  free(wait);
  if (signals >= 0) (void)close(signals);
  return status ? status : verdict(crew);
}
