/* NCCL's part: communicators, messages, sums, and the plugin that is asked about them. */
#include "mock_state.h"

static world *worlds;
static unsigned char ids;
static _Thread_local int depth;
static _Thread_local message *open_group;
static _Thread_local struct ncclComm *open_comm;
static _Thread_local cudaStream_t open_stream;

/* --- what moves ------------------------------------------------------------------------------- */

static void post(const struct ncclComm *comm, message *m) {
  message **at = &comm->world->box[comm->rank][m->peer];
  while (*at) at = &(*at)->later;
  *at = m;
  m->posted = true;
}

/* The oldest message from the peer; with NCCL another length is a hang or worse. */
static void take(struct ncclComm *comm, message *m) {
  message **at = &comm->world->box[m->peer][comm->rank];
  message *sent = *at;
  if (!sent) return;
  *at = sent->later;
  if (sent->bytes != m->bytes) comm->state = ncclInvalidUsage;
  memcpy(m->to, sent->from, sent->bytes < m->bytes ? sent->bytes : m->bytes);
  mock_carried_bytes += sent->bytes;
  sent->done = m->done = true;
}

static bool move_messages(operation *op) {
  bool all = true;
  for (message *m = op->messages; m; m = m->next) {
    if (m->send && !m->posted) post(op->comm, m);
    if (!m->send && !m->done) take(op->comm, m);
    all = all && m->done;
  }
  return all;
}

/* In the order of ranks, once all have come. */
static bool move_sum(operation *op) {
  world *w = op->comm->world;
  sum *s = &w->sums[op->turn % 4];
  if (!op->posted) {
    if (s->came > 0 && (s->turn != op->turn || s->count != op->bytes ||
                        s->algorithm != op->algorithm)) { /* with NCCL a hang or worse */
      op->comm->state = ncclInvalidUsage;
      return false;
    }
    s->turn = op->turn;
    s->algorithm = op->algorithm;
    s->count = op->bytes;
    s->part[op->comm->rank] = malloc(op->bytes * sizeof(float) + 1);
    memcpy(s->part[op->comm->rank], op->from, op->bytes * sizeof(float));
    s->came++;
    op->posted = true;
  }
  if (s->came < w->size) return false;
  if (!s->total) {
    s->total = calloc(op->bytes + 1, sizeof(float));
    for (int r = 0; r < w->size; r++)
      for (size_t i = 0; i < op->bytes; i++) s->total[i] += s->part[r][i];
  }
  memcpy(op->to, s->total, op->bytes * sizeof(float));
  if (++s->left == w->size) {
    for (int r = 0; r < w->size; r++) free(s->part[r]);
    free(s->total);
    *s = (sum){0};
  }
  return true;
}

bool mock_move(operation *op) {
  if (op->comm->fault != ncclSuccess) {
    op->comm->state = op->comm->fault;
    return false;
  }
  return op->kind == ALL_REDUCE ? move_sum(op) : move_messages(op);
}

/* --- NCCL ------------------------------------------------------------------------------------- */

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "a remote error (mock)" : "an error (mock)";
}
const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "why (mock)";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  pthread_mutex_lock(&mock_lock);
  memset(id, ++ids, sizeof *id);
  pthread_mutex_unlock(&mock_lock);
  return ncclSuccess;
}

static world *find_world(const ncclUniqueId *id, int size) {
  for (world *w = worlds; w; w = w->next)
    if (memcmp(&w->id, id, sizeof *id) == 0) return w;
  world *w = calloc(1, sizeof *w);
  *w = (world){.id = *id, .size = size, .next = worlds};
  worlds = w;
  return w;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (config->blocking != 0 || ranks > RANKS || rank < 0 || rank >= ranks)
    return ncclInvalidArgument;
  struct ncclComm *comm = calloc(1, sizeof *comm);
  comm->tuner = mock_open_tuner(mock_tuner, ranks);
  pthread_mutex_lock(&mock_lock);
  comm->world = find_world(&id, ranks);
  comm->world->joined += mock_fail_init == 0;
  comm->world->users++;
  comm->rank = rank;
  comm->fault = (ncclResult_t)mock_fail_groups;
  comm->state = mock_fail_init ? (ncclResult_t)mock_fail_init : ncclInProgress;
  comm->starting = true;
  mock_fail_init = 0;
  mock_alive++;
  pthread_mutex_unlock(&mock_lock);
  *out = comm;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  pthread_mutex_lock(&mock_lock);
  *state = comm->state;
  /* What was asked is taken the next time somebody looks. */
  if (comm->state == ncclInProgress &&
      (!comm->starting || comm->world->joined == comm->world->size)) {
    comm->state = ncclSuccess;
    comm->starting = false;
  }
  pthread_mutex_unlock(&mock_lock);
  return ncclSuccess;
}

static void leave(struct ncclComm *comm) {
  world *w = comm->world;
  for (int peer = 0; peer < RANKS; peer++) w->box[comm->rank][peer] = NULL;
  if (--w->users == 0) {
    for (world **at = &worlds; *at; at = &(*at)->next)
      if (*at == w) {
        *at = w->next;
        break;
      }
    for (size_t i = 0; i < 4; i++) {
      for (int r = 0; r < RANKS; r++) free(w->sums[i].part[r]);
      free(w->sums[i].total);
    }
    free(w);
  }
  mock_alive--;
  mock_close_tuner(&comm->tuner);
  free(comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  pthread_mutex_lock(&mock_lock);
  comm->state = ncclInProgress;
  pthread_mutex_unlock(&mock_lock);
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  pthread_mutex_lock(&mock_lock);
  leave(comm);
  pthread_mutex_unlock(&mock_lock);
  return ncclSuccess;
}
/* What it was doing is dropped: its stream is this thread's last one. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  pthread_mutex_lock(&mock_lock);
  for (operation **at = open_stream ? &open_stream->first : NULL; at && *at;) {
    operation *op = *at;
    if (op->comm == comm) {
      *at = op->next;
      for (message *m = op->messages; m; m = m->next)
        if (m->posted && !m->done) comm->world->box[comm->rank][m->peer] = NULL;
      mock_free_operation(op);
    } else {
      at = &op->next;
    }
  }
  leave(comm);
  pthread_mutex_unlock(&mock_lock);
  return ncclSuccess;
}

/* NCCL's header declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

static ncclResult_t add(const void *from, void *to, size_t count, int peer, ncclComm_t comm,
                        cudaStream_t stream) {
  if (depth == 0 || peer < 0 || peer >= comm->world->size || peer == comm->rank)
    return ncclInvalidArgument;
  message *m = calloc(1, sizeof *m), **at = &open_group;
  *m = (message){.send = from != NULL, .peer = peer, .from = from, .to = to, .bytes = count};
  while (*at) at = &(*at)->next;
  *at = m;
  open_comm = comm;
  open_stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return type == ncclUint8 ? add(data, NULL, count, peer, comm, stream) : ncclInvalidArgument;
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return type == ncclUint8 ? add(NULL, data, count, peer, comm, stream) : ncclInvalidArgument;
}

static ncclResult_t enqueue(operation *op, struct ncclComm *comm, cudaStream_t stream) {
  pthread_mutex_lock(&mock_lock);
  op->comm = comm;
  mock_append(stream, op);
  comm->state = ncclInProgress;
  pthread_mutex_unlock(&mock_lock);
  return ncclInProgress;
}

ncclResult_t ncclGroupEnd(void) {
  if (--depth > 0 || !open_group) return ncclSuccess;
  operation *op = calloc(1, sizeof *op);
  op->kind = POINT_TO_POINT;
  op->messages = open_group;
  open_group = NULL;
  return enqueue(op, open_comm, open_stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat32 || how != ncclSum) return ncclInvalidArgument;
  operation *op = calloc(1, sizeof *op);
  *op = (operation){.kind = ALL_REDUCE,
                    .from = from,
                    .to = to,
                    .bytes = count,
                    .turn = comm->turn++,
                    .algorithm = mock_choose(&comm->tuner, mock_lacks, count * sizeof(float))};
  if (mock_sums < MOCK_RAN) mock_ran[mock_sums] = op->algorithm;
  mock_sums++;
  open_stream = stream;
  return enqueue(op, comm, stream);
}
