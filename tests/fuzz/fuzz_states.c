/* libFuzzer: what processes keep for others that come later, or that look at them: a session's
 * saved state, a trainer's checkpoint, status blocks, and what the helper program answers.  The
 * first byte says which, the second under which policy; what follows are changes to a sound one
 * that is made here (changes.h).  Checksums are made right afterwards. */
#include <glib.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "netmon/helper.c" /* so that there is a helper without a program */

#include "base/crc32c.h"
#include "base/log.h"
#include "changes.h"
#include "cli.h"
#include "demand.h"
#include "lab/savepoint.h"
#include "lab/trainer_state.h"
#include "session/state.h"
#include "session/status.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 8, A = 96, B = 5, N = A + B, STEPS = 4, RUN = 77 };

/* --- bytes ------------------------------------------------------------------------------------ */

static bool append(void *user, const void *data, size_t bytes) {
  blob *b = user;
  b->data = g_realloc(b->data, b->bytes + bytes);
  memcpy(b->data + b->bytes, data, bytes);
  b->bytes += bytes;
  return true;
}

static bool take_bytes(void *user, void *data, size_t bytes) {
  blob *b = user;
  if (b->at + bytes > b->bytes) return false;
  memcpy(data, b->data + b->at, bytes);
  b->at += bytes;
  return true;
}

/* --- sessions --------------------------------------------------------------------------------- */

static const char *const policies[] = {"weir",
                                       "paper",
                                       "fixed:powersgd:4:dense-ring",
                                       "fixed:bilateral:4:dense-ring",
                                       "fixed:whitened:0.125:sra",
                                       "fixed:dithered:0.125:sra:huffman",
                                       "fixed:topk:0.1:ag",
                                       "groups:turns=2:even=2:topk:0.1:ag;layers:topk:0.1:ag",
                                       "schedule:topk:0.1:ag;step=3:none:1:dense-ring",
                                       "bits:knapsack:2:2"};
enum { POLICIES = G_N_ELEMENTS(policies) };
static blob states[POLICIES];

static void steady(void *user, uint64_t step, double *latency_s, double *bandwidth) {
  (void)user;
  (void)step;
  *latency_s = 1e-3;
  *bandwidth = 1e8;
}

static weir_session *create(size_t policy) {
  weir_options options;
  weir_session *session = NULL;
  weir_options_init(&options);
  options.transport = "inproc";
  options.rendezvous = "fuzz";
  options.policy = policies[policy];
  options.virtual_network = steady;
  options.momentum_correction = policy == 3 ? 0.9 : 0;
  demand(weir_session_create(&session, &options) == WEIR_OK, "no session");
  demand(weir_register_matrix(session, "a", ROWS, A / ROWS, NULL) == WEIR_OK, "no matrix");
  demand(weir_register_tensor(session, "b", B, NULL) == WEIR_OK, "no tensor");
  return session;
}

static weir_status step(weir_session *session, float *g) {
  for (int i = 0; i < N; i++) g[i] = sinf((float)i) * (float)(1 + i % 5);
  weir_status status = weir_step_begin(session, NULL);
  if (status == WEIR_OK) status = weir_submit(session, 0, g);
  if (status == WEIR_OK) status = weir_submit(session, 1, g + A);
  return status == WEIR_OK ? weir_step_end(session, NULL) : status;
}

static blob save_session(size_t policy) {
  blob b = {0};
  float g[N];
  weir_session *session = create(policy);
  demand(weir_session_start(session) == WEIR_OK, "no start");
  for (int i = 0; i < STEPS; i++) demand(step(session, g) == WEIR_OK, "no step");
  demand(weir_session_save(session, append, &b) == WEIR_OK, "nothing saved");
  weir_session_free(session);
  return b;
}

/* What is believed is gone on from, and saved again. */
static void feed_session(size_t policy, const uint8_t *data, size_t size) {
  if (states[policy].bytes == 0) states[policy] = save_session(policy);
  blob b = changed(&states[policy], data, size), again = {0};
  const size_t end = b.bytes - sizeof(uint64_t);
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, b.data, end);
  memcpy(b.data + end, &hash, sizeof hash);
  weir_session *session = create(policy);
  float g[N];
  if (weir_session_load(session, take_bytes, &b) == WEIR_OK &&
      weir_session_start(session) == WEIR_OK)
    for (int i = 0; i < STEPS; i++)
      if (step(session, g) != WEIR_OK) break;
  if (session->started && session->broken == WEIR_OK)
    demand(weir_session_save(session, append, &again) == WEIR_OK, "nothing saved again");
  weir_session_free(session);
  g_free(b.data);
  g_free(again.data);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

enum { IMAGES = 16, PIXELS = 784 };
static char folder[] = "/tmp/weir-fuzz-states-XXXXXX";
static weir_trainer *trainer;
static blob checkpoint;
static const weir_savepoint here = {.run = RUN, .workers = 1, .committed = 3, .executed = 8};

static char *path_of(const char *name) { return g_build_filename(folder, name, NULL); }

static void make_trainer(void) {
  static uint8_t images[IMAGES * PIXELS], labels[IMAGES];
  static weir_dataset dataset = {.name = "fashion-mnist",
                                 .train = IMAGES,
                                 .test = IMAGES,
                                 .pixels = PIXELS,
                                 .train_images = images,
                                 .train_labels = labels,
                                 .test_images = images,
                                 .test_labels = labels};
  const weir_trainer_config config = {.model = "cnn",
                                      .sizes = {.channels = 2},
                                      .seed = 5,
                                      .world_size = 1,
                                      .batch = 4,
                                      .learning_rate = 0.05,
                                      .optimizer = {.momentum = 0.9},
                                      .decay_factor = 1,
                                      .threads = 1};
  for (int i = 0; i < IMAGES; i++) labels[i] = (uint8_t)(i % 10);
  demand(weir_trainer_create(&trainer, &config, &dataset) == WEIR_OK, "no trainer");
}

static weir_session *register_trainer(void) {
  weir_session *session = create(3);
  demand(weir_trainer_register(trainer, session) == WEIR_OK, "not registered");
  return session;
}

static void make_checkpoint(void) {
  g_autofree char *path = path_of(".weir-rank-0.0");
  char *text = NULL;
  make_trainer();
  weir_session *session = register_trainer();
  demand(weir_session_start(session) == WEIR_OK, "no start");
  demand(weir_savepoint_write(folder, &here, trainer, session) == WEIR_OK, "no checkpoint");
  weir_session_free(session);
  demand(g_file_get_contents(path, &text, &checkpoint.bytes, NULL), "no file");
  checkpoint.data = (uint8_t *)text;
}

static void feed_checkpoint(const uint8_t *data, size_t size) {
  enum { CRC = sizeof(uint32_t), HASH = sizeof(uint64_t) };
  static const size_t head = 96;
  weir_savepoint at;
  double loss;
  if (checkpoint.bytes == 0) make_checkpoint();
  blob b = changed(&checkpoint, data, size);
  /* The session's part begins with its name. */
  const uint8_t *state = memmem(checkpoint.data, checkpoint.bytes, "WEIRSAVE", 8);
  const size_t from = (size_t)(state - checkpoint.data), end = b.bytes - CRC;
  demand(state != NULL && from > head, "a checkpoint without a session");
  const uint64_t hash = weir_hash(WEIR_HASH_INIT, b.data + from, end - HASH - from);
  memcpy(b.data + end - HASH, &hash, HASH);
  const uint32_t crc = weir_crc32c(0, b.data, end);
  memcpy(b.data + end, &crc, CRC);
  g_autofree char *path = path_of(".weir-rank-0.0");
  FILE *file = fopen(path, "we");
  demand(file != NULL && fwrite(b.data, 1, b.bytes, file) == b.bytes && fclose(file) == 0,
         "no file");
  if (weir_savepoint_find(folder, RUN, 1, &at)) {
    weir_session *session = register_trainer();
    if (weir_savepoint_load(folder, &at, trainer, session) == WEIR_OK)
      demand(weir_trainer_backward(trainer, &loss) == WEIR_OK, "a trainer that cannot go on");
    weir_session_free(session);
  }
  g_free(b.data);
}

/* --- status blocks ---------------------------------------------------------------------------- */

enum { RANKS = 3 };
static blob block;
static weir_status_file shown;
static pid_t holder;

/* A file counts as long as another process holds it. */
static void hold(void) {
  holder = fork();
  demand(holder >= 0, "no process");
  if (holder == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = open(shown.path, O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (file < 0 || fcntl(file, F_SETLKW, &lock) != 0) _exit(1);
    for (;;) (void)pause();
  }
}

static void make_block(void) {
  weir_status_facts facts = {.steps = 5,
                             .world_size = RANKS,
                             .plan = "topk:0.01:ag",
                             .policy = "weir",
                             .transport = "tcp",
                             .decision = "why not"};
  weir_status_rank rows[RANKS] = {0};
  demand(weir_status_open(&shown, 7, 0, RANKS) == WEIR_OK && shown.file >= 0, "no block");
  weir_status_publish(shown.block, &facts, rows);
  (void)append(&block, shown.block, shown.bytes);
  hold();
  /* This process's own lock goes, that the other one can have it. */
  struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
  demand(fcntl(shown.file, F_SETLK, &none) == 0, "no lock less");
  struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  while (fcntl(shown.file, F_GETLK, &asked) == 0 && asked.l_type == F_UNLCK) {
    asked.l_type = F_WRLCK;
    (void)usleep(1000);
  }
}

static void feed_block(const uint8_t *data, size_t size) {
  char *table[] = {"weir top", "--once", NULL}, *json[] = {"weir top", "--once", "--json", NULL};
  if (block.bytes == 0) make_block();
  blob b = changed(&block, data, size);
  demand(pwrite(shown.file, b.data, b.bytes, 0) == (ssize_t)b.bytes, "no block in its file");
  (void)weir_cmd_top(2, table);
  (void)weir_cmd_top(3, json);
  demand(access(shown.path, F_OK) == 0, "a block that is held was cleared away");
  g_free(b.data);
}

/* --- the helper program ----------------------------------------------------------------------- */

static void answered(int end, const uint8_t *data, size_t size) {
  weir_helper_reply reply = {
      WEIR_HELPER_MAGIC, WEIR_HELPER_VERSION, 1, WEIR_OK, 1e8, 5, "eth0", "no"};
  blob sound = {.data = (uint8_t *)&reply, .bytes = sizeof reply};
  blob b = changed(&sound, data, size);
  if (size > 0 && data[size - 1] == 0xFF) b.bytes -= size % b.bytes; /* a shorter one */
  (void)send(end, b.data, b.bytes, MSG_DONTWAIT);
  g_free(b.data);
}

static void feed_answer(size_t what, const uint8_t *data, size_t size) {
  int ends[2];
  char name[16] = "";
  double rate = 1;
  uint64_t bytes = 0;
  demand(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
  weir_helper helper = {.socket = ends[0]};
  answered(ends[1], data, size);
  (void)shutdown(ends[1], SHUT_WR); /* so that nobody waits for more */
  if (what % 3 == 0 && weir_iperf_measure(&helper, "127.0.0.1", 5201, 1000, 1, &rate) == WEIR_OK)
    demand(rate > 0 && isfinite(rate), "a rate that is none");
  if (what % 3 == 1 && weir_link_of_address(&helper, "127.0.0.1", name) == WEIR_OK)
    demand(memchr(name, 0, sizeof name) != NULL, "a name without an end");
  if (what % 3 == 2) (void)weir_link_bytes(&helper, "lo", &bytes);
  (void)close(ends[0]);
  (void)close(ends[1]);
}

/* --- all -------------------------------------------------------------------------------------- */

static void keep_quiet(void *user, const weir_log_line *line) {
  (void)user;
  (void)line;
}

static void leave(void) {
  g_autofree char *path = path_of(".weir-rank-0.0");
  if (holder > 0) (void)kill(holder, SIGKILL);
  if (holder > 0) (void)waitpid(holder, NULL, 0);
  if (shown.file > 0) (void)unlink(shown.path);
  (void)unlink(path);
  (void)rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  demand(mkdtemp(folder) != NULL && atexit(leave) == 0, "no folder");
  weir_log_set(keep_quiet, NULL);
  (void)setenv("WEIR_STATUS_DIR", folder, 1);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  const bool status = data[0] == 't';
  (void)setenv("WEIR_STATUS", status ? "on" : "off", 1);
  switch (data[0]) {
    case 's': feed_session(data[1] % POLICIES, data + 2, size - 2); break;
    case 'c': feed_checkpoint(data + 2, size - 2); break;
    case 't': feed_block(data + 2, size - 2); break;
    case 'h': feed_answer(data[1], data + 2, size - 2); break;
    default: break;
  }
  return 0;
}
