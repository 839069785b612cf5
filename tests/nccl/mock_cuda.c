/* CUDA's part: devices, memory, streams. */
#include "mock_state.h"

pthread_mutex_t mock_lock = PTHREAD_MUTEX_INITIALIZER;
size_t mock_alive, mock_carried_bytes;
_Thread_local int mock_fail_init, mock_fail_groups, mock_ran[MOCK_RAN];
_Thread_local int mock_lacks = -1;
_Thread_local const char *mock_tuner;
_Thread_local size_t mock_sums;

static struct memory {
  unsigned char *at;
  size_t bytes;
  struct memory *next;
} * memories;
static size_t allocated, blocked;
static _Thread_local int devices = 4, device;
static _Thread_local cudaError_t last_error;

static size_t told_under_lock(const size_t *number) {
  pthread_mutex_lock(&mock_lock);
  const size_t value = *number;
  pthread_mutex_unlock(&mock_lock);
  return value;
}
static size_t allocations(void) { return told_under_lock(&allocated); }
static size_t living(void) { return told_under_lock(&mock_alive); }
static size_t would_block(void) { return told_under_lock(&blocked); }
static size_t carried(void) { return told_under_lock(&mock_carried_bytes); }

__attribute__((visibility("default"))) void mock_control(mock_controls *out);
void mock_control(mock_controls *out) {
  *out = (mock_controls){&devices, &mock_fail_init, &mock_fail_groups, &mock_tuner, &mock_lacks,
                         mock_ran, &mock_sums,      allocations,       living,      would_block,
                         carried};
}

/* --- CUDA ------------------------------------------------------------------------------------- */

static cudaError_t told(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no device (mock)" : "an error (mock)";
}
cudaError_t cudaGetDeviceCount(int *count) {
  *count = devices;
  return devices > 0 ? cudaSuccess : told(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *out) {
  *out = device;
  return devices > 0 ? cudaSuccess : told(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int number) {
  if (number < 0 || number >= devices) return told(cudaErrorInvalidDevice);
  device = number;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
  struct memory *m = malloc(sizeof *m);
  *m = (struct memory){malloc(bytes + 1), bytes, NULL};
  pthread_mutex_lock(&mock_lock);
  m->next = memories;
  memories = m;
  allocated++;
  mock_alive++;
  pthread_mutex_unlock(&mock_lock);
  *out = m->at;
  return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
  pthread_mutex_lock(&mock_lock);
  for (struct memory **m = &memories; *m; m = &(*m)->next)
    if ((*m)->at == data) {
      struct memory *gone = *m;
      *m = gone->next;
      free(gone->at);
      free(gone);
      mock_alive--;
      break;
    }
  pthread_mutex_unlock(&mock_lock);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *data) {
  memset(about, 0, sizeof *about);
  pthread_mutex_lock(&mock_lock);
  for (const struct memory *m = memories; m; m = m->next)
    if ((const unsigned char *)data >= m->at && (const unsigned char *)data < m->at + m->bytes)
      about->type = cudaMemoryTypeDevice;
  pthread_mutex_unlock(&mock_lock);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags) {
  (void)flags;
  *out = calloc(1, sizeof **out);
  pthread_mutex_lock(&mock_lock);
  mock_alive++;
  pthread_mutex_unlock(&mock_lock);
  return cudaSuccess;
}

void mock_free_operation(operation *op) {
  for (message *m = op->messages, *next; m; m = next) {
    next = m->next;
    free(m);
  }
  free(op->staged);
  free(op);
}

void mock_append(cudaStream_t stream, operation *op) {
  operation **at = &stream->first;
  while (*at) at = &(*at)->next;
  *at = op;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  pthread_mutex_lock(&mock_lock);
  for (operation *op = stream->first, *next; op; op = next) {
    next = op->next;
    mock_free_operation(op);
  }
  free(stream);
  mock_alive--;
  pthread_mutex_unlock(&mock_lock);
  return cudaSuccess;
}

/* From ordinary memory CUDA reads before the call returns; to it, it writes before the call
 * returns, once all before it on the stream is done. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind way,
                            cudaStream_t stream) {
  operation *op = calloc(1, sizeof *op);
  *op = (operation){.kind = COPY, .from = from, .to = to, .bytes = bytes};
  pthread_mutex_lock(&mock_lock);
  if (way == cudaMemcpyHostToDevice) {
    op->staged = malloc(bytes + 1);
    memcpy(op->staged, from, bytes);
    op->from = op->staged;
  }
  for (const operation *before = stream->first; before; before = before->next)
    if (way == cudaMemcpyDeviceToHost && before->kind != COPY) {
      blocked++; /* copies end by themselves; what NCCL does may not */
      break;
    }
  mock_append(stream, op);
  pthread_mutex_unlock(&mock_lock);
  return cudaSuccess;
}

static bool move(operation *op) {
  if (op->kind != COPY) return mock_move(op);
  memcpy(op->to, op->from, op->bytes);
  return true;
}

/* One thing at a time, and never the last in the same call in which it was found. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  pthread_mutex_lock(&mock_lock);
  operation *op = stream->first;
  if (op && move(op)) {
    stream->first = op->next;
    mock_free_operation(op);
  }
  const bool busy = op != NULL;
  pthread_mutex_unlock(&mock_lock);
  return busy ? cudaErrorNotReady : cudaSuccess;
}
