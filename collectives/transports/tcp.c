/* Full mesh of TCP connections, and one UDP socket a rank. */
#include "collectives/transports/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/transports/tcp_joiners.h"
#include "collectives/transports/tcp_tls.h"

/* A socket that is a bell says nothing of the network. */
static int tcp_descriptor(weir_transport *t, int peer) {
  const tcp_peer *p = peer >= 0 && peer < t->size ? &((tcp *)t)->peer[peer] : NULL;
  return p && !p->memory ? p->fd : -1;
}

static const char *tcp_address(weir_transport *t, int rank) {
  if (rank < 0 || rank >= t->size) return NULL;
  const char *address = ((tcp *)t)->peer[rank].address;
  return *address ? address : NULL;
}

static int tcp_port(weir_transport *t, int rank) {
  return rank >= 0 && rank < t->size ? ntohs(((tcp *)t)->peer[rank].data.sin_port) : 0;
}

static int tcp_streams(const weir_transport *t) { return ((const tcp *)t)->streams; }

static void tcp_abort(weir_transport *t, int culprit) {
  tcp *self = (tcp *)t;
  tcp_send_abort(self, WEIR_E_PEER, culprit);
  if (self->ended.reason != WEIR_OK) return;
  self->ended = (weir_end){WEIR_E_PEER, culprit, t->rank};
  self->ended_ns = tcp_wall_ns();
}

static void close_fd(int fd) {
  if (fd >= 0) (void)close(fd);
}

static void tcp_destroy(weir_transport *t) {
  tcp *self = (tcp *)t;
  if (!self) return;
  tcp_answerer_stop(self);
  for (int r = 0; self->peer && r < self->streams * t->size; r++) {
    tcp_tls_free(self->peer[r].tls);
    close_fd(self->peer[r].fd);
    free(self->peer[r].stage);
  }
  weir_machine_memory_close(&self->shared);
  close_fd(self->door > 0 ? self->door : -1);
  close_fd(self->listener);
  close_fd(self->stop);
  close_fd(self->wake);
  close_fd(self->udp);
  tcp_joiners_close(self->joiners);
  weir_credentials_release(self->credentials);
  free(self->synod);
  free(self->poll);
  free(self->active);
  free(self->peer);
  (void)pthread_mutex_destroy(&self->reading);
  free(self);
}

static const weir_transport_ops tcp_ops = {
    .name = "tcp",
    .transfer = tcp_transfer,
    .echo = tcp_echo,
    .train = tcp_train,
    .descriptor = tcp_descriptor,
    .address = tcp_address,
    .abort = tcp_abort,
    .destroy = tcp_destroy,
    .shrink = tcp_shrink,
    .waiting = tcp_waiting,
    .grow = tcp_grow,
    .port = tcp_port,
    .take_memory = tcp_take_memory,
    .streams = tcp_streams,
    .watch = &tcp_watch_ops,
};

static weir_status allocate(tcp *self) {
  const size_t size = (size_t)(self->streams * self->base.size);
  self->peer = calloc(size, sizeof *self->peer);
  if (!self->peer) return weir_fail(WEIR_E_NOMEM, "no memory for %zu connections", size);
  for (size_t r = 0; r < size; r++) self->peer[r].fd = -1;
  self->active = calloc(size, sizeof *self->active);
  self->poll = calloc(size + 1, sizeof *self->poll);
  bool complete = self->active && self->poll;
  for (size_t r = 0; complete && r < size; r++)
    if (r % (size_t)self->base.size != (size_t)self->base.rank)
      complete = (self->peer[r].stage = malloc(TCP_STAGE)) != NULL;
  if (!complete) return weir_fail(WEIR_E_NOMEM, "no memory for %zu connections", size);
  self->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  self->stop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (self->wake < 0 || self->stop < 0)
    return weir_fail(WEIR_E_IO, "no event descriptor: %s", strerror(errno));
  return WEIR_OK;
}

weir_status tcp_create(tcp **out, uint64_t job, int rank, int size, int streams) {
  *out = NULL;
  tcp *self = calloc(1, sizeof *self);
  if (!self) return weir_fail(WEIR_E_NOMEM, "no memory for a transport");
  self->base = (weir_transport){.ops = &tcp_ops, .rank = rank, .size = size};
  self->job = job;
  self->streams = streams;
  self->crowded = weir_crowded(size);
  self->udp = self->wake = self->stop = self->listener = -1;
  (void)pthread_mutex_init(&self->reading, NULL);
  atomic_init(&self->waiting_on, -1);
  atomic_init(&self->meeting, false);
  atomic_init(&self->abort, 0);
  atomic_init(&self->abort_ns, 0);
  const weir_status status = allocate(self);
  if (status == WEIR_OK)
    *out = self;
  else
    tcp_destroy(&self->base);
  return status;
}

void tcp_seal_by(tcp *self, bool plain, weir_credentials *credentials) {
  self->sealed = !self->secret || plain ? TCP_PLAIN
                 : credentials != NULL  ? TCP_BY_CERTIFICATE
                                        : TCP_BY_KEY;
  if (self->sealed == TCP_BY_CERTIFICATE) self->credentials = weir_credentials_hold(credentials);
}

weir_status weir_transport_tcp_open(weir_transport **out, const weir_tcp_options *options) {
  const int size = options->size, streams = options->streams == 0 ? 1 : options->streams;
  tcp *self = NULL;
  *out = NULL;
  weir_status status = weir_transport_check(options->rank, size, options->timeout_s);
  if (status == WEIR_OK && (streams < 1 || streams > WEIR_TCP_STREAMS_MAX))
    status = weir_fail(WEIR_E_INVALID, "%d streams between two ranks: it must be 1 to %d", streams,
                       WEIR_TCP_STREAMS_MAX);
  if (status == WEIR_OK && options->most > 0)
    status = weir_transport_check(0, options->most, options->timeout_s);
  if (status == WEIR_OK) status = tcp_create(&self, options->job_id, options->rank, size, streams);
  if (status != WEIR_OK) {
    close_fd(options->listener > 0 ? options->listener : -1);
    return status;
  }
  self->door = options->listener;
  self->most = options->most;
  self->offer = options->offer;
  self->secret = options->secret_bytes > 0;
  tcp_seal_by(self, options->plain, options->credentials);
  self->key = weir_key_of_job(options->secret, options->secret_bytes, options->job_id);
  const double deadline_s = weir_now_s() + options->timeout_s;
  status = tcp_rendezvous(self, options->rendezvous, options->bind_address, deadline_s);
  if (status == WEIR_OK && (size > 1 || self->most > 0)) status = tcp_answerer_start(self);
  if (status == WEIR_OK && size > 1 && self->sealed) status = tcp_tls_open(self, deadline_s, true);
  if (status != WEIR_OK) {
    tcp_destroy(&self->base);
    return status;
  }
  *out = &self->base;
  return WEIR_OK;
}

weir_status weir_transport_tcp_secret(weir_transport **out, const char *rendezvous,
                                      const char *bind_address, const void *secret,
                                      size_t secret_bytes, uint64_t job_id, int rank, int size,
                                      double timeout_s) {
  return weir_transport_tcp_open(out, &(weir_tcp_options){.rendezvous = rendezvous,
                                                          .bind_address = bind_address,
                                                          .secret = secret,
                                                          .secret_bytes = secret_bytes,
                                                          .job_id = job_id,
                                                          .rank = rank,
                                                          .size = size,
                                                          .timeout_s = timeout_s});
}

weir_status weir_transport_tcp(weir_transport **out, const char *rendezvous,
                               const char *bind_address, uint64_t job_id, int rank, int size,
                               double timeout_s) {
  return weir_transport_tcp_secret(out, rendezvous, bind_address, NULL, 0, job_id, rank, size,
                                   timeout_s);
}
