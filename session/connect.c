/* Which transport, and the group over it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "session/state.h"

static weir_tcp_options meeting_of(const weir_session *session) {
  const weir_options *options = &session->options;
  return (weir_tcp_options){.rendezvous = options->rendezvous,
                            .bind_address = options->bind_address,
                            .secret = session->secret,
                            .secret_bytes = session->secret_bytes,
                            .job_id = options->job_id,
                            .rank = options->rank,
                            .size = options->world_size,
                            .streams = options->tcp_streams,
                            .listener = options->listener,
                            .plain = session->plain,
                            .credentials = session->credentials,
                            .most = options->max_ranks,
                            .offer = weir_session_offer(session),
                            .timeout_s = options->timeout_s};
}

static weir_status over_shm(weir_session *session, weir_transport **out) {
  const weir_options *options = &session->options;
  return weir_transport_shm(out, options->rendezvous, options->job_id, options->rank,
                            options->world_size, options->timeout_s);
}

/* Equal on two ranks that can share memory and see each other's processes: the boot of their
 * kernel, their namespace of processes, their shared memory file system, their user; and their
 * machine and its network, as memory would go past whatever is between two (a shaped link, a
 * policy).  0: unknown. */
static uint64_t shared_memory_place(void) {
  char boot[64];
  struct stat processes, network, memory;
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? read(fd, boot, sizeof boot) : -1;
  if (fd >= 0) (void)close(fd);
  if (got <= 0 || stat("/proc/self/ns/pid", &processes) != 0 ||
      stat("/proc/self/ns/net", &network) != 0 || stat("/dev/shm", &memory) != 0)
    return 0;
  const uint64_t parts[] = {(uint64_t)processes.st_ino, (uint64_t)network.st_ino,
                            (uint64_t)memory.st_dev,    (uint64_t)memory.st_ino,
                            (uint64_t)geteuid(),        weir_host_identity(NULL)};
  const uint64_t place = weir_hash(WEIR_HASH_INIT, boot, (size_t)got);
  return weir_hash(place, parts, sizeof parts);
}

/* All ranks tell a word; are they equal and not 0? */
static weir_status unanimous(weir_session *session, uint64_t mine, bool *yes) {
  const size_t ranks = (size_t)session->options.world_size;
  uint64_t *all = calloc(ranks, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to ask %zu ranks", ranks);
  const weir_status status = weir_session_gather(session, &mine, sizeof mine, all);
  *yes = true;
  for (size_t r = 0; r < ranks; r++)
    if (all[r] != mine || mine == 0) *yes = false;
  free(all);
  return status;
}

/* The group has met over TCP.  Should it turn out that it can share memory, it moves there; all
 * ranks come to the same answer at both questions. */
static weir_status move_to_memory(weir_session *session) {
  weir_transport *memory = NULL;
  bool yes = false;
  /* Where there is no room all say so by another word, lest they wait there for rank 0. */
  const uint64_t place = shared_memory_place();
  const bool fits = weir_transport_shm_fits(session->options.world_size) == WEIR_OK;
  weir_status status = unanimous(session, fits || place == 0 ? place : ~place, &yes);
  if (status != WEIR_OK || !yes) return status;
  const bool there = fits && over_shm(session, &memory) == WEIR_OK;
  if (!there)
    weir_log(WEIR_LOG_INFO, "the group does not move to transport shm: %s", weir_last_error());
  status = unanimous(session, there, &yes);
  if (status != WEIR_OK || !yes) {
    if (memory != NULL) memory->ops->destroy(memory);
    return status;
  }
  weir_comm_free(session->comm);
  session->comm = NULL;
  session->transport->ops->destroy(session->transport);
  session->transport = memory;
  session->shares = false;
  return weir_comm_create(&session->comm, memory, session->options.timeout_s);
}

/* Are devices asked to read each other's memory?  WEIR_DEVICE_IPC says "off" for no. */
static weir_status wants_rooms(const weir_session *session, bool *wants) {
  const char *asked = getenv("WEIR_DEVICE_IPC");
  *wants = asked == NULL || *asked == 0 || strcmp(asked, "auto") == 0;
  if (!*wants && strcmp(asked, "off") != 0)
    return weir_fail(WEIR_E_INVALID, "WEIR_DEVICE_IPC is \"%s\"; it can be auto or off", asked);
  *wants = *wants && session->device_ops != NULL && session->options.virtual_network == NULL;
  return WEIR_OK;
}

/* Whose devices read each other's memory, by all ranks' words: all of them, or those of each
 * machine where all have as many ranks. */
static void find_readers(weir_session *session, const uint64_t *all) {
  const weir_comm *comm = session->comm;
  const int ranks = session->options.world_size;
  bool one = all[0] != 0, inside = one && weir_comm_levelled(comm) && weir_comm_hosts(comm) > 1;
  for (int r = 1; r < ranks; r++) {
    one = one && all[r] == all[0];
    for (int q = 0; q < r; q++)
      inside = inside && all[r] != 0 &&
               (all[q] == all[r]) == (weir_comm_host_of(comm, q) == weir_comm_host_of(comm, r));
  }
  session->rooms = one || inside;
  session->rooms_inside = !one && inside;
}

weir_status weir_session_find_rooms(weir_session *session) {
  bool wants = false;
  session->rooms = session->rooms_inside = false;
  if (!session->devices || session->options.world_size == 1) return WEIR_OK;
  weir_status status = wants_rooms(session, &wants);
  if (status != WEIR_OK) return status;
  const size_t ranks = (size_t)session->options.world_size;
  const uint64_t mine = wants ? shared_memory_place() : 0;
  uint64_t *all = calloc(ranks, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory to ask %zu ranks", ranks);
  status = weir_session_gather(session, &mine, sizeof mine, all);
  if (status == WEIR_OK) find_readers(session, all);
  free(all);
  if (status == WEIR_OK && !session->rooms)
    weir_log(WEIR_LOG_INFO,
             "messages of devices go over the host: not all ranks have one, on one machine or as "
             "many on each, with WEIR_DEVICE_IPC at auto");
  return status;
}

weir_status weir_session_find_hosts(weir_session *session) {
  const weir_status status = weir_comm_find_hosts(session->comm, weir_host_identity(NULL));
  weir_comm_neighbours(session->comm, &session->next, &session->previous);
  return status == WEIR_OK && session->shares ? weir_comm_share_memory(session->comm) : status;
}

/* Over MPI or TCP. */
static weir_status meet(weir_session *session) {
  const weir_options *options = &session->options;
  const weir_tcp_options meeting = meeting_of(session);
  if (weir_options_over_mpi(options))
    return weir_transport_mpi(&session->transport, options->job_id, options->rank,
                              options->world_size, options->timeout_s);
  session->options.listener = 0; /* the transport's from now on, whatever comes of it */
  return weir_transport_tcp_open(&session->transport, &meeting);
}

weir_status weir_session_connect(weir_session *session) {
  const weir_options *options = &session->options;
  const char *name = options->transport;
  char own[64];
  weir_status status;
  const bool alone = options->world_size == 1 && options->max_ranks == 0;
  session->shares = !alone && weir_options_share(options);
  if (alone) {
    /* A group of one needs no meeting place; its name is its own. */
    (void)snprintf(own, sizeof own, "weir alone %p", (void *)session);
    status = weir_transport_inproc(&session->transport, own, 0, 1, options->timeout_s);
  } else if (strcmp(name, "inproc") == 0) {
    status = weir_transport_inproc(&session->transport, options->rendezvous, options->rank,
                                   options->world_size, options->timeout_s);
  } else if (strcmp(name, "shm") == 0) {
    status = over_shm(session, &session->transport);
  } else {
    status = meet(session);
    if (status == WEIR_OK && weir_options_over_nccl(options))
      status = weir_transport_nccl(&session->transport, session->transport,
                                   strncmp(name, "nccl+", 5) == 0, options->timeout_s);
  }
  session->has_secret = session->secret_bytes > 0;
  session->key = weir_key_of_job(session->secret, session->secret_bytes, options->job_id);
  weir_session_forget_secret(session);
  if (status == WEIR_OK)
    status = weir_comm_create(&session->comm, session->transport, options->timeout_s);
  const bool moves = options->world_size > 1 && options->max_ranks == 0;
  if (status == WEIR_OK && moves && strcmp(name, "auto") == 0) status = move_to_memory(session);
  return status == WEIR_OK ? weir_session_find_hosts(session) : status;
}
