/* Ranks of Weir's own transports: forked, so that nothing of the parent has to be told, or started
 * by mpirun. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weir/launch.h>

#include "collectives.h"
#include "collectives/calibrate.h"
#include "collectives/compressed.h"
#include "lab/topology.h"

#define LINKS_PORT 7000 /* in namespaces that nobody else has */

const char *const bench_kind_names[BENCH_KINDS] = {
    "all-reduce", "broadcast", "all-gather", "reduce-scatter", "reduce", "gather", "compressed"};

const char *weir_bench_row_name(bench_kind kind, guint32 row) {
  switch (kind) {
    case BENCH_ALLREDUCE: return row < WEIR_ALLREDUCE_ROWS ? weir_allreduces[row].name : NULL;
    case BENCH_BROADCAST: return row < WEIR_BROADCAST_COUNT ? weir_broadcasts[row].name : NULL;
    case BENCH_ALLGATHER: return row < WEIR_ALLGATHER_COUNT ? weir_allgathers[row].name : NULL;
    case BENCH_REDUCE_SCATTER:
      return row < WEIR_REDUCE_SCATTER_COUNT ? weir_reduce_scatters[row].name : NULL;
    case BENCH_REDUCE: return row < WEIR_REDUCE_COUNT ? weir_reduces[row].name : NULL;
    case BENCH_GATHER: return row < WEIR_GATHER_COUNT ? weir_gathers[row].name : NULL;
    case BENCH_COMPRESSED: return row < WEIR_COMPRESSED_COUNT ? weir_compressed[row].name : NULL;
    default: return NULL;
  }
}

typedef struct weir_rank {
  bench_rank base;
  weir_value_format format;
  weir_transport *transport;
  weir_comm *comm;
  weir_coder coder; /* of compressed all-reduces */
  guint64 step;
} weir_rank;

static gboolean over_mpi(const contender *c) {
  return c->setting == BENCH_MPI || c->setting == BENCH_BOTH;
}

static gboolean said(weir_rank *w, weir_status status) {
  if (status == WEIR_OK) return TRUE;
  (void)g_strlcpy(w->base.message, weir_last_error(), sizeof w->base.message);
  return FALSE;
}

static weir_status run_row(weir_rank *w, guint32 row, gsize n) {
  bench_rank *r = &w->base;
  const gsize stride = n / (gsize)r->size * sizeof(float);
  gsize bytes = n * sizeof(float), out[RANKS_MAX];
  for (int i = 0; i < r->size; i++) out[i] = stride;
  switch (r->kind) {
    case BENCH_BROADCAST: return weir_broadcasts[row].run(w->comm, 0, r->x, bytes, &bytes);
    case BENCH_ALLGATHER: return weir_allgathers[row].run(w->comm, r->x, stride, out, NULL);
    case BENCH_REDUCE_SCATTER:
      return weir_reduce_scatters[row].run(w->comm, r->x, n, w->format, r->error);
    case BENCH_REDUCE: return weir_reduces[row].run(w->comm, 0, r->x, n, w->format, r->error);
    case BENCH_GATHER: return weir_gathers[row].run(w->comm, 0, r->x, stride, out);
    case BENCH_COMPRESSED:
      w->coder.seed = w->step;
      return weir_compressed[row].run(w->comm, &w->coder, r->x, n, r->error, NULL);
    default: return weir_allreduces[row].run(w->comm, r->x, n, w->format, r->error, NULL);
  }
}

static gboolean once(bench_rank *r, guint32 row, gsize n) {
  weir_rank *w = (weir_rank *)r;
  weir_comm_step(w->comm, 1, w->step++);
  return said(w, run_row(w, row, n));
}

static gboolean together(bench_rank *r) {
  weir_rank *w = (weir_rank *)r;
  weir_comm_step(w->comm, 1, w->step++);
  return said(w, weir_allreduces[WEIR_ALLREDUCE_TREE].run(w->comm, r->error, 1, WEIR_VALUE_FP32,
                                                          NULL, NULL));
}

static guint64 sent(bench_rank *r) { return ((weir_rank *)r)->transport->bytes_sent; }

/* Which ranks share a machine, which then share memory, and what its links are like. */
static weir_status find_machines(weir_rank *w, const contender *c, const bench_plan *p) {
  const int rank = w->base.rank;
  weir_link link;
  weir_status status = weir_comm_find_hosts(w->comm, (guint64)(rank / p->per_machine));
  if (status == WEIR_OK && (c->setting == BENCH_MIXED || c->setting == BENCH_BOTH))
    status = weir_comm_share_memory(w->comm);
  if (status != WEIR_OK || p->links == NULL) return status;
  status = weir_calibrate(w->comm, &link);
  if (status == WEIR_OK && rank == 0) *c->link = link;
  return status;
}

static weir_status join_group(weir_rank *w, const contender *c, const bench_plan *p, guint64 job) {
  const bench_rank *r = &w->base;
  const gboolean links = p->links != NULL;
  weir_status status = WEIR_OK;
  char own[WEIR_ADDRESS_MAX];
  weir_topology_address(r->rank / p->per_machine, own);
  if (c->setting == BENCH_SHM)
    status = weir_transport_shm(&w->transport, c->where, job, r->rank, r->size, BENCH_TIMEOUT_S);
  else if (over_mpi(c))
    status = weir_transport_mpi(&w->transport, job, r->rank, r->size, BENCH_TIMEOUT_S);
  else /* any secret does: it is the cipher that is timed; and the loopback needs none */
    status = weir_transport_tcp_open(
        &w->transport,
        &(weir_tcp_options){.rendezvous = c->where,
                            .bind_address = links ? own : NULL,
                            .secret = c->where,
                            .secret_bytes = links || c->setting == BENCH_TLS ? strlen(c->where) : 0,
                            .plain = c->setting != BENCH_TLS,
                            .job_id = job,
                            .rank = r->rank,
                            .size = r->size,
                            .timeout_s = BENCH_TIMEOUT_S});
  if (status == WEIR_OK) status = weir_comm_create(&w->comm, w->transport, BENCH_TIMEOUT_S);
  return status == WEIR_OK && c->setting != BENCH_SHM ? find_machines(w, c, p) : status;
}

static int be_rank(const contender *c, const bench_plan *p, const char *path, int number, int rank,
                   guint64 job) {
  weir_rank w = {.format = p->format};
  w.base = (bench_rank){.kind = p->kind,
                        .rank = rank,
                        .size = p->ranks,
                        .most = p->most,
                        .bits = p->bits,
                        .once = once,
                        .together = together,
                        .sent = sent};
  w.coder = (weir_coder){.codec = weir_codec_find(WEIR_CODEC_QSGD), .cr = p->bits / 32.0};
  int code = 1;
  if (weir_bench_rank_open(&w.base) && said(&w, weir_codec_context_create(&w.coder.context)) &&
      said(&w, join_group(&w, c, p, job)))
    code = weir_bench_serve(&w.base, path, number);
  else
    weir_bench_excuse(path, number, rank, w.base.message);
  weir_comm_free(w.comm);
  if (w.transport) w.transport->ops->destroy(w.transport);
  weir_codec_context_free(w.coder.context);
  weir_bench_rank_close(&w.base);
  return code;
}

/* What a rank that mpirun starts must know of the plan: numbers, and the path. */
static gboolean launch(contender *c, const bench_plan *p, const char *path, int number) {
  g_autofree char *what =
      g_strdup_printf("%d,%d,%d,%d,%u,%d,%" G_GSIZE_FORMAT ",%s", number, c->setting, (int)p->kind,
                      (int)p->format, p->bits, p->per_machine, p->most, path);
  return weir_bench_mpirun(c, p->ranks, "", "--own-rank", what);
}

int weir_bench_own_rank(const char *text) {
  weir_launch launch = {.struct_size = sizeof launch};
  contender c = {.setting = -1};
  bench_plan p = {.links = NULL};
  int number = 0, kind = 0, format = 0, at = 0;
  if (sscanf(text, "%d,%d,%d,%d,%u,%d,%" G_GSIZE_FORMAT ",%n", &number, &c.setting, &kind, &format,
             &p.bits, &p.per_machine, &p.most, &at) != 7 ||
      at == 0 || !over_mpi(&c) || p.per_machine < 1 || kind < 0 || kind >= BENCH_KINDS ||
      weir_launch_read(&launch) != WEIR_OK)
    return 2;
  p.kind = (bench_kind)kind;
  p.format = (weir_value_format)format;
  p.ranks = launch.world_size;
  return be_rank(&c, &p, text + at, number, launch.rank, 1);
}

static gboolean start(contender *c, const bench_plan *p, const char *path, int number) {
  if (c->launched) return launch(c, p, path, number);
  const guint64 job = (guint64)getpid();
  (void)g_snprintf(c->where, sizeof c->where, "bench-%d", (int)getpid());
  if (p->links) {
    char first[WEIR_ADDRESS_MAX];
    weir_topology_address(0, first);
    (void)g_snprintf(c->where, sizeof c->where, "%s:%d", first, LINKS_PORT + c->setting);
  } else if (c->setting != BENCH_SHM && !weir_bench_free_port(c->where, sizeof c->where)) {
    (void)g_strlcpy(c->absent, "no free port on the loopback", sizeof c->absent);
    return FALSE;
  }
  for (; c->processes < p->ranks; c->processes++) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (p->links && weir_topology_join(p->links, c->processes / p->per_machine) != WEIR_OK)
        _exit(1);
      (void)close_range(3, ~0u, 0); /* else a rank could not see its connection end */
      _exit(be_rank(c, p, path, number, c->processes, job));
    }
    if (pid < 0) {
      (void)g_strlcpy(c->absent, "cannot start a process", sizeof c->absent);
      return FALSE;
    }
    c->pid[c->processes] = pid;
  }
  return TRUE;
}

static gboolean has_row(const contender *c, const bench_plan *p, guint32 row) {
  if (!p->algorithm[row] || !weir_bench_row_name(p->kind, row)) return FALSE;
  if (p->kind != BENCH_ALLREDUCE || row < WEIR_ALLREDUCE_NATIVE) return TRUE;
  return row == WEIR_ALLREDUCE_NATIVE && /* NCCL, which is told others, is not among these */
         ((c->setting == BENCH_SHM || over_mpi(c)) && p->format == WEIR_VALUE_FP32);
}

static void prepare(contender *c, const char *name, int setting) {
  *c = (contender){.name = name,
                   .row_name = weir_bench_row_name,
                   .has_row = has_row,
                   .start = start,
                   .setting = setting};
  c->launched = over_mpi(c);
}

gboolean weir_bench_contender_own(contender *c, const char *name) {
  static const char *const names[] = {"shm",   "tcp", "tls",
                                      "mixed", "mpi", "shm+mpi"}; /* by BENCH_SHM and so on */
  for (int setting = 0; setting < (int)G_N_ELEMENTS(names); setting++)
    if (strcmp(name, names[setting]) == 0) {
      prepare(c, names[setting], setting);
      c->link =
          mmap(NULL, sizeof *c->link, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (c->link == MAP_FAILED) abort();
      return TRUE;
    }
  return FALSE;
}
