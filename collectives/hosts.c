/* Which ranks share a machine, and the communicators inside of machines and between them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/comm.h"
#include "collectives/patterns/patterns.h"

#define TEXT_MAX 256
/* A collective has at most so many operations on each level. */
#define LEVEL_OPS 32u

uint64_t weir_host_identity(const char *override) {
  const char *text = override ? override : getenv("WEIR_HOST");
  if (text && *text) return weir_hash(WEIR_HASH_INIT, text, strnlen(text, TEXT_MAX));
  uint64_t hash = WEIR_HASH_INIT;
  char line[TEXT_MAX] = "";
  FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (boot && fgets(line, sizeof line, boot)) hash = weir_hash(hash, line, strlen(line));
  if (boot) (void)fclose(boot);
  if (gethostname(line, sizeof line) == 0) hash = weir_hash(hash, line, strnlen(line, sizeof line));
  struct stat space; /* one kernel, several networks: as far apart as machines are */
  if (stat("/proc/self/ns/net", &space) == 0) {
    const uint64_t number[2] = {(uint64_t)space.st_dev, (uint64_t)space.st_ino};
    hash = weir_hash(hash, number, sizeof number);
  }
  return hash;
}

static void forget_levels(weir_hosts *hosts) {
  weir_comm_free(hosts->inner);
  weir_comm_free(hosts->outer);
  if (hosts->inner_view) hosts->inner_view->ops->destroy(hosts->inner_view);
  if (hosts->outer_view) hosts->outer_view->ops->destroy(hosts->outer_view);
  hosts->inner = hosts->outer = NULL;
  hosts->inner_view = hosts->outer_view = NULL;
}

void weir_hosts_free(weir_hosts *hosts) {
  forget_levels(hosts);
  free(hosts->of);
  hosts->of = NULL;
}

weir_status weir_comm_find_hosts(weir_comm *comm, uint64_t identity) {
  static const char name[] = "weir hosts";
  const size_t size = (size_t)weir_comm_size(comm), rank = (size_t)weir_comm_rank(comm);
  uint64_t *all = calloc(size, sizeof *all); /* compared for equality only: any byte order does */
  size_t *bytes = calloc(size, sizeof *bytes);
  int *of = calloc(size, sizeof *of);
  weir_status status = WEIR_E_NOMEM;
  if (!all || !bytes || !of) {
    status = weir_fail(status, "no memory to group %zu ranks", size);
    goto done;
  }
  all[rank] = identity;
  bytes[rank] = sizeof *all;
  weir_comm_step(comm, weir_hash(WEIR_HASH_INIT, name, sizeof name), 0);
  status = weir_allgather(comm, all, sizeof *all, bytes, NULL);
  for (size_t r = 0; status == WEIR_OK && r < size; r++)
    if (bytes[r] != sizeof *all) {
      comm->transport->ops->abort(comm->transport, (int)r);
      status = weir_fail(WEIR_E_PROTOCOL, "rank %zu names its host in %zu bytes, not %zu", r,
                         bytes[r], sizeof *all);
    }
  if (status != WEIR_OK) goto done;
  weir_hosts_free(&comm->hosts);
  comm->hosts.count = weir_hosts_group(all, (int)size, of);
  comm->hosts.even = weir_hosts_even(of, (int)size, comm->hosts.count);
  comm->hosts.order = weir_shape_of(of, (int)size, comm->hosts.count).order;
  comm->hosts.of = of;
  comm->hosts.largest = weir_hosts_largest(of, (int)size, comm->hosts.count);
  of = NULL;
done:
  free(of);
  free(bytes);
  free(all);
  return status;
}

weir_status weir_comm_share_memory(weir_comm *comm) {
  return weir_transport_share(comm->transport, comm->hosts.of, comm->timeout_s);
}

int weir_comm_hosts(const weir_comm *comm) { return comm->hosts.count; }

weir_group_shape weir_comm_shape(const weir_comm *comm) {
  return (weir_group_shape){.ranks = weir_comm_size(comm),
                            .hosts = comm->hosts.count,
                            .told = weir_comm_told(comm),
                            .largest = comm->hosts.largest,
                            .order = comm->hosts.order};
}

bool weir_comm_levelled(const weir_comm *comm) {
  return comm->hosts.even && comm->hosts.count < weir_comm_size(comm);
}

int weir_comm_host_of(const weir_comm *comm, int rank) {
  return comm->hosts.of ? comm->hosts.of[rank] : rank;
}

/* Ranks machine by machine, and as many further on as the largest machine has: nobody is left on
 * the own one. */
void weir_comm_neighbours(const weir_comm *comm, int *next, int *previous) {
  const int size = weir_comm_size(comm), hosts = comm->hosts.count, rank = weir_comm_rank(comm);
  const int largest = comm->hosts.largest;
  int own = 0, before = 0;
  for (int host = 0; host < hosts; host++) {
    int count = 0;
    for (int r = 0; r < size; r++) {
      if (weir_comm_host_of(comm, r) != host) continue;
      if (r == rank) own = before + count;
      count++;
    }
    before += count;
  }
  const int shift = largest < size ? largest : 1;
  const int ahead = (own + shift) % size, behind = (own + size - shift % size) % size;
  int at = 0;
  *next = *previous = rank;
  for (int host = 0; host < hosts; host++)
    for (int r = 0; r < size; r++) {
      if (weir_comm_host_of(comm, r) != host) continue;
      if (at == ahead) *next = r;
      if (at == behind) *previous = r;
      at++;
    }
}

bool weir_comm_crosses(const weir_comm *comm, int peer) {
  return comm->hosts.count == 1 ||
         weir_comm_host_of(comm, peer) != weir_comm_host_of(comm, weir_comm_rank(comm));
}

static weir_status make_level(weir_comm *comm, const int *member, int size, weir_transport **view,
                              weir_comm **out) {
  if (size < 2) return WEIR_OK;
  const weir_status status = weir_transport_view(view, comm->transport, member, size);
  return status == WEIR_OK ? weir_comm_create(out, *view, comm->timeout_s) : status;
}

static weir_status make_levels(weir_comm *comm) {
  weir_hosts *hosts = &comm->hosts;
  const int size = weir_comm_size(comm), rank = weir_comm_rank(comm);
  int *of = malloc(2 * (size_t)size * sizeof *of);
  if (!of) return weir_fail(WEIR_E_NOMEM, "no memory to group %d ranks", size);
  int *member = of + size;
  for (int r = 0; r < size; r++) of[r] = weir_comm_host_of(comm, r);
  int count = weir_hosts_members(of, size, of[rank], member);
  weir_status status = make_level(comm, member, count, &hosts->inner_view, &hosts->inner);
  const int place = weir_hosts_place(of, rank);
  if (status == WEIR_OK && (hosts->even || place == 0)) {
    count = weir_hosts_column(of, size, hosts->count, place, member);
    status = make_level(comm, member, count, &hosts->outer_view, &hosts->outer);
  }
  free(of);
  if (status != WEIR_OK) forget_levels(hosts);
  return status;
}

weir_status weir_comm_levels(weir_comm *comm) {
  weir_hosts *hosts = &comm->hosts;
  if (!hosts->inner && !hosts->outer && weir_comm_size(comm) > 1) {
    const weir_status status = make_levels(comm);
    if (status != WEIR_OK) return status;
  }
  weir_comm *level[2] = {hosts->inner, hosts->outer};
  for (uint32_t i = 0; i < 2; i++) {
    if (!level[i]) continue;
    level[i]->tag.plan = comm->tag.plan;
    level[i]->tag.step = comm->tag.step;
    level[i]->next_op = UINT32_C(1) << 31 | ((2 * comm->tag.op + i) * LEVEL_OPS);
  }
  return WEIR_OK;
}

weir_status weir_allgather_between(weir_comm *comm, const weir_allgather_row *row, void *all,
                                   size_t stride, size_t *bytes) {
  weir_status status = weir_comm_begin(comm, NULL);
  if (status == WEIR_OK) status = weir_comm_levels(comm);
  return status == WEIR_OK && comm->hosts.outer != NULL
             ? row->run(comm->hosts.outer, all, stride, bytes, NULL)
             : status;
}
