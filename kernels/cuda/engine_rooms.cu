/* Rooms for messages that other ranks' devices read, in this process or in others of the machine
 * (kernels/device.h).  A room of this process is reached by its address; another process opens it
 * by a handle, which CUDA takes in no other way. */
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>

#include "kernels/cuda/engine.cuh"

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(weir_device_room::handle), "a handle's bytes");

constexpr int READERS = 62;

/* What lies before a room; behind it the mark comes once more.  reader: the processes of ranks
 * that have the room open, written by their devices; 0: none. */
struct room_edge {
  uint64_t mark;
  int32_t reader[READERS];
};
constexpr size_t EDGE = WEIR_ROOM_EDGE;
static_assert(sizeof(room_edge) == EDGE && EDGE == 256,
              "messages in a room begin as memory of a device does");

/* What this process has made or opened. */
struct known_room {
  known_room *next;
  unsigned char *memory; /* with its edges */
  int device;
  size_t bytes; /* without them */
  uint64_t mark;
  unsigned users;
  bool foreign;
  int reader; /* of a foreign one, */
  int32_t process;
};

static std::mutex lock;
static known_room *rooms;
static uint64_t made;

static void keep(known_room *room) {
  std::lock_guard<std::mutex> held(lock);
  room->next = rooms;
  rooms = room;
}

/* One of the two pieces of memory is the host's, and the stream is idle: it takes no time. */
static weir_status copy(weir_device *device, void *to, const void *from, size_t bytes) {
  weir_status status = weir_device_wait_for_own(device);
  if (status == WEIR_OK) {
    status = weir_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device->own),
                             "an edge of a room");
  }
  return status == WEIR_OK ? weir_device_wait_for_own(device) : status;
}

/* What was told of a room's length is true, and its memory can be read from here. */
static weir_status look(weir_device *device, const weir_device_room *told,
                        const unsigned char *memory) {
  uint64_t before = 0, behind = 0;
  weir_status status = copy(device, &before, memory, sizeof before);
  if (status == WEIR_OK) status = copy(device, &behind, memory + EDGE + told->bytes, sizeof behind);
  if (status != WEIR_OK || (before == told->mark && behind == told->mark)) return status;
  return weir_fail(WEIR_E_UNSUPPORTED, "a room on a device is not what was told of it");
}

/* --- one's own ------------------------------------------------------------------------------- */

static weir_status open_edges(weir_device *device, known_room *room) {
  room_edge edge = {};
  edge.mark = room->mark;
  weir_status status = weir_cuda_check(
      cudaMalloc((void **)&room->memory, weir_room_memory(room->bytes)), "room for messages");
  if (status == WEIR_OK) status = copy(device, room->memory, &edge, sizeof edge);
  return status == WEIR_OK
             ? copy(device, room->memory + EDGE + room->bytes, &edge.mark, sizeof edge.mark)
             : status;
}

weir_status weir_device_make_room(weir_device *device, size_t bytes, void **room,
                                  weir_device_room *told) {
  *room = NULL;
  *told = weir_device_room();
  known_room *mine = new (std::nothrow) known_room();
  if (mine == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for a room");
  const uint64_t process = (uint64_t)getpid();
  const uint64_t words[] = {process, (uint64_t)(uintptr_t)mine,
                            __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED)};
  mine->device = device->device;
  mine->bytes = (bytes + EDGE - 1) / EDGE * EDGE;
  mine->mark = weir_hash(WEIR_HASH_INIT, words, sizeof words);
  mine->users = 1;
  weir_status status = weir_device_enter(device);
  if (status == WEIR_OK) status = open_edges(device, mine);
  if (status != WEIR_OK) {
    (void)cudaFree(mine->memory);
    delete mine;
    return status;
  }
  /* Without a handle other processes cannot open it, and say so. */
  cudaIpcMemHandle_t handle = {};
  if (weir_cuda_check(cudaIpcGetMemHandle(&handle, mine->memory), "a handle") == WEIR_OK)
    memcpy(told->handle, &handle, sizeof handle);
  told->bytes = mine->bytes;
  told->process = process;
  told->memory = (uint64_t)(uintptr_t)mine->memory;
  told->mark = mine->mark;
  *room = mine->memory + EDGE;
  keep(mine);
  return WEIR_OK;
}

static bool lives(int32_t process) {
  const int file = (int)syscall(SYS_pidfd_open, process, 0);
  if (file < 0) return errno != ESRCH;
  pollfd ended = {file, POLLIN, 0};
  const bool yes = poll(&ended, 1, 0) <= 0;
  (void)close(file);
  return yes;
}

/* Memory must not be freed under a device that reads it.  Who lives and still has it open after
 * that time does not read it any more: it will be through its last step. */
static void linger(weir_device *device, const known_room *room) {
  const double end = weir_now_s() + WEIR_ROOM_LINGER_S;
  const timespec pause = {0, 1000000};
  for (bool open = true; open && weir_now_s() < end;) {
    room_edge edge;
    open = false;
    if (copy(device, &edge, room->memory, sizeof edge) != WEIR_OK) return;
    for (int32_t reader : edge.reader) open = open || (reader > 0 && lives(reader));
    if (open) (void)nanosleep(&pause, NULL);
  }
}

/* --- others' --------------------------------------------------------------------------------- */

/* Whoever tells of a room of this process names one that there is. */
static known_room *find_mine(const weir_device_room *told) {
  known_room *room = rooms;
  while (room != NULL && (room->foreign || (uint64_t)(uintptr_t)room->memory != told->memory ||
                          room->bytes != told->bytes || room->mark != told->mark))
    room = room->next;
  return room;
}

static weir_status open_near(weir_device *device, const weir_device_room *told, void **room) {
  {
    std::lock_guard<std::mutex> held(lock);
    known_room *there = find_mine(told);
    if (there == NULL)
      return weir_fail(WEIR_E_UNSUPPORTED, "this process has made no such room on a device");
    there->users++;
    *room = there->memory + EDGE;
  }
  weir_status status = look(device, told, (const unsigned char *)*room - EDGE);
  if (status != WEIR_OK) {
    weir_device_close_room(device, *room);
    *room = NULL;
  }
  return status;
}

static weir_status tell_reader(weir_device *device, const known_room *room, int32_t process) {
  room_edge *edge = (room_edge *)(void *)room->memory;
  return copy(device, &edge->reader[room->reader], &process, sizeof process);
}

static weir_status open_foreign(weir_device *device, const weir_device_room *told, int reader,
                                void **room) {
  cudaIpcMemHandle_t handle;
  void *memory = NULL;
  if (reader < 0 || reader >= READERS)
    return weir_fail(WEIR_E_UNSUPPORTED, "rank %d is one too many to read a room on a device",
                     reader);
  memcpy(&handle, told->handle, sizeof handle);
  weir_status status =
      weir_cuda_check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
                      "opening another process's memory");
  if (status != WEIR_OK) return status;
  known_room *there = new (std::nothrow) known_room();
  if (there == NULL) {
    (void)cudaIpcCloseMemHandle(memory);
    return weir_fail(WEIR_E_NOMEM, "no memory for a room");
  }
  there->memory = (unsigned char *)memory;
  there->device = device->device;
  there->users = 1;
  there->foreign = true;
  there->reader = reader;
  there->process = (int32_t)told->process;
  status = look(device, told, there->memory);
  if (status == WEIR_OK) status = tell_reader(device, there, (int32_t)getpid());
  if (status != WEIR_OK) {
    (void)cudaIpcCloseMemHandle(memory);
    delete there;
    return status;
  }
  *room = there->memory + EDGE;
  keep(there);
  return WEIR_OK;
}

weir_status weir_device_open_room(weir_device *device, const weir_device_room *told, int reader,
                                  void **room) {
  *room = NULL;
  if (told->bytes % EDGE != 0 || told->bytes > SIZE_MAX / 2)
    return weir_fail(WEIR_E_UNSUPPORTED, "a room of %llu bytes on a device",
                     (unsigned long long)told->bytes);
  weir_status status = weir_device_enter(device);
  if (status != WEIR_OK) return status;
  return told->process == (uint64_t)getpid() ? open_near(device, told, room)
                                             : open_foreign(device, told, reader, room);
}

/* --- closing --------------------------------------------------------------------------------- */

/* Takes a room out whose last user leaves it; NULL: others have it still. */
static known_room *take_out(const void *room) {
  std::lock_guard<std::mutex> held(lock);
  for (known_room **at = &rooms; *at != NULL; at = &(*at)->next) {
    known_room *found = *at;
    if (found->memory + EDGE != room) continue;
    if (--found->users > 0) return NULL;
    *at = found->next;
    return found;
  }
  return NULL;
}

void weir_device_close_room(weir_device *device, void *room) {
  known_room *found = room != NULL ? take_out(room) : NULL;
  if (found == NULL || weir_device_enter(device) != WEIR_OK) return;
  if (found->foreign) {
    if (lives(found->process)) (void)tell_reader(device, found, 0);
    (void)cudaIpcCloseMemHandle(found->memory);
  } else {
    linger(device, found);
    (void)cudaSetDevice(found->device);
    (void)cudaFree(found->memory);
    (void)cudaSetDevice(device->device);
  }
  delete found;
}
