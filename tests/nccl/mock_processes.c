/* A library that stands for NCCL and CUDA where ranks are processes of one machine, as of `weir
 * train`: "the device" is memory of the process, sums are done in the call and messages while the
 * stream is asked for, and ranks meet in a file that they share.  By what all-reduces ran is told
 * in the file WEIR_MOCK_RAN.RANK, a letter each: r, t or o (NCCL's own choice). */
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mock_ask.h"

#define RANKS 4
#define ROOM ((size_t)1 << 16) /* floats of a sum at once */
#define BOX ((size_t)1 << 16)  /* bytes on the way between two ranks */
#define PATIENCE_S 20.0

/* What one rank has sent to another; both ends count on. */
typedef struct box {
  atomic_size_t written, read;
  unsigned char bytes[BOX];
} box;

typedef struct shared {
  atomic_int joined, gone;
  box box[RANKS][RANKS]; /* from, to */
  /* Of pieces of sums: how many a rank has brought its part to, and has the total of. */
  atomic_size_t brought[RANKS], taken[RANKS];
  int algorithm[RANKS];
  size_t count[RANKS];
  float part[RANKS][ROOM];
} shared;

struct ncclComm {
  shared *with;
  int rank, size;
  size_t sums;
  mock_tuner_use tuner;
};

typedef struct message {
  bool send;
  int peer;
  unsigned char *data;
  size_t bytes;
} message;
static message group[64];
static size_t grouped;
static struct ncclComm *group_of;
static bool stuck; /* in a sum that a rank will not take part in: the stream is never done */

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- NCCL ------------------------------------------------------------------------------------- */

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error (mock)" : "an error (mock)";
}
const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int named;
  memset(id, 0, sizeof *id);
  (void)snprintf(id->internal, sizeof id->internal, "/weir-mock-nccl-%d-%d", (int)getpid(),
                 named++);
  return ncclSuccess;
}

/* The file has no name any more once all have come. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (config->blocking != 0 || ranks > RANKS) return ncclInvalidArgument;
  const int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(shared)) != 0) return ncclSystemError;
  void *at = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  (void)close(file);
  if (at == MAP_FAILED) return ncclSystemError;
  struct ncclComm *comm = calloc(1, sizeof *comm);
  *comm = (struct ncclComm){
      .with = at, .rank = rank, .size = ranks, .tuner = mock_open_tuner(NULL, ranks)};
  if (atomic_fetch_add(&comm->with->joined, 1) == ranks - 1) (void)shm_unlink(id.internal);
  *out = comm;
  stuck = false;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  *state = atomic_load(&comm->with->joined) >= comm->size ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  (void)comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  grouped = 0;
  stuck = false;
  (void)atomic_fetch_add(&comm->with->gone, 1);
  mock_close_tuner(&comm->tuner);
  (void)munmap(comm->with, sizeof(shared));
  free(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return ncclCommAbort(comm); }

/* NCCL's header declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
  grouped = 0;
  return ncclSuccess;
}

static ncclResult_t add(bool send, void *data, size_t bytes, int peer, ncclComm_t comm) {
  if (grouped == sizeof group / sizeof *group) return ncclInvalidUsage;
  group[grouped++] = (message){send, peer, data, bytes};
  group_of = comm;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  (void)type;
  (void)stream;
  return add(true, (void *)(uintptr_t)data, count, peer, comm);
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  (void)type;
  (void)stream;
  return add(false, data, count, peer, comm);
}

/* As many bytes as there are, or is room for. */
static void move(message *m) {
  const int rank = group_of->rank;
  box *b = m->send ? &group_of->with->box[rank][m->peer] : &group_of->with->box[m->peer][rank];
  const size_t written = atomic_load(&b->written), read = atomic_load(&b->read);
  size_t bytes = m->send ? BOX - (written - read) : written - read;
  if (bytes > m->bytes) bytes = m->bytes;
  for (size_t i = 0; i < bytes; i++)
    if (m->send)
      b->bytes[(written + i) % BOX] = m->data[i];
    else
      m->data[i] = b->bytes[(read + i) % BOX];
  (void)atomic_fetch_add(m->send ? &b->written : &b->read, bytes);
  m->data += bytes;
  m->bytes -= bytes;
}

/* Messages of one pair keep their order. */
static bool is_first(const message *m) {
  for (const message *before = group; before < m; before++)
    if (before->send == m->send && before->peer == m->peer && before->bytes > 0) return false;
  return true;
}

/* What was asked for is done whenever somebody asks for the stream. */
ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }

static bool move_all(void) {
  bool more = false;
  for (message *m = group; m < group + grouped; m++) {
    if (m->bytes > 0 && is_first(m)) move(m);
    more |= m->bytes > 0;
  }
  return !more;
}

/* Until all have counted so far.  Who waits for a rank that has left waits for ever with NCCL, but
 * not in the call. */
static bool all_reach(const struct ncclComm *comm, const atomic_size_t *counts, size_t to) {
  const double until_s = now_s() + PATIENCE_S;
  for (int r = 0; r < comm->size; r++)
    while (atomic_load(&counts[r]) < to) {
      if (atomic_load(&comm->with->gone) > 0 && atomic_load(&counts[r]) < to) stuck = true;
      if (stuck || now_s() > until_s) return false;
      (void)sched_yield();
    }
  return true;
}

static void tell(int rank, int algorithm) {
  char name[512];
  (void)snprintf(name, sizeof name, "%s.%d", getenv("WEIR_MOCK_RAN"), rank);
  FILE *file = getenv("WEIR_MOCK_RAN") ? fopen(name, "a") : NULL;
  if (file == NULL) return;
  (void)fputc(algorithm == MOCK_RING ? 'r' : algorithm == MOCK_TREE ? 't' : 'o', file);
  (void)fclose(file);
}

/* A piece of a sum.  Ranks that sum by different algorithms hang with NCCL: here it is an error. */
static ncclResult_t sum_piece(struct ncclComm *comm, const float *from, float *to, size_t count,
                              int algorithm) {
  shared *with = comm->with;
  const int rank = comm->rank;
  bool same = true;
  if (!all_reach(comm, with->taken, comm->sums)) return ncclSystemError;
  with->algorithm[rank] = algorithm;
  with->count[rank] = count;
  memcpy(with->part[rank], from, count * sizeof *from);
  atomic_store(&with->brought[rank], ++comm->sums);
  if (!all_reach(comm, with->brought, comm->sums)) return ncclSystemError;
  for (int r = 0; r < comm->size; r++)
    same = same && with->algorithm[r] == algorithm && with->count[r] == count;
  for (size_t i = 0; i < count && same; i++) {
    float sum = 0;
    for (int r = 0; r < comm->size; r++) sum += with->part[r][i];
    to[i] = sum;
  }
  atomic_store(&with->taken[rank], comm->sums);
  return same ? ncclSuccess : ncclInvalidUsage;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  const int algorithm = mock_choose(&comm->tuner, -1, count * sizeof(float));
  ncclResult_t result = ncclSuccess;
  (void)stream;
  if (type != ncclFloat32 || how != ncclSum) return ncclInvalidArgument;
  for (size_t at = 0; at < count && result == ncclSuccess; at += ROOM)
    result = sum_piece(comm, (const float *)from + at, (float *)to + at,
                       count - at < ROOM ? count - at : ROOM, algorithm);
  tell(comm->rank, algorithm);
  return stuck ? ncclSuccess : result;
}

/* --- CUDA ------------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error (mock)" : "an error (mock)";
}
cudaError_t cudaGetDeviceCount(int *count) {
  *count = RANKS;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device >= 0 && device < RANKS ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
  *out = malloc(bytes + 1);
  return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
  free(memory);
  return cudaSuccess;
}
/* It is the host's as far as Weir knows, and so Weir copies. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *memory) {
  (void)memory;
  memset(about, 0, sizeof *about);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
  (void)flags;
  *out = NULL;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  (void)stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  (void)stream;
  return move_all() && !stuck ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind way,
                            cudaStream_t stream) {
  (void)way;
  (void)stream;
  memcpy(to, from, bytes);
  return cudaSuccess;
}
