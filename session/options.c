/* A session's options: their defaults, and what is refused of them. */
#include <math.h>
#include <string.h>
#include <sys/socket.h>

#include "controller/filter.h"
#include "session/abi.h"
#include "session/state.h"

static const weir_options defaults = {.struct_size = sizeof defaults,
                                      .world_size = 1,
                                      .transport = "tcp",
                                      .timeout_s = 10,
                                      .policy = "weir",
                                      .risk = "measured",
                                      .update_rule = "unknown",
                                      .trial_budget = 0.04,
                                      .seed = 1,
                                      .journal_bytes = UINT64_C(256) << 20,
                                      .active_probes = true,
                                      .codec_threads = 1,
                                      .tcp_streams = 1,
                                      .device = -1,
                                      .nonfinite = "zero",
                                      .tls = "auto",
                                      .full_precision = "",
                                      .error_feedback = true};

/* A size that this library does not know is left for weir_session_create to refuse. */
void weir_options_init_sized(weir_options *options, size_t struct_size) {
  const size_t known = struct_size < sizeof defaults ? struct_size : sizeof defaults;
  memset(options, 0, struct_size);
  memcpy(options, &defaults, known);
  if (struct_size >= sizeof struct_size) options->struct_size = struct_size;
}

static const weir_abi_struct known_options = WEIR_ABI_STRUCT(weir_options, virtual_user);

weir_status weir_options_take(weir_options *current, const weir_options *callers) {
  if (callers == NULL) return weir_fail(WEIR_E_INVALID, "options are NULL");
  *current = defaults;
  return weir_abi_take(&known_options, current, callers);
}

/* What goes with steps on a device. */
static weir_status check_device(const weir_options *options) {
  if (options->device < -1)
    return weir_fail(WEIR_E_INVALID, "device is %d; it must be the number of a CUDA device, or -1",
                     options->device);
  if (options->device < 0 && options->stream != NULL)
    return weir_fail(WEIR_E_INVALID, "there is a stream, and no device");
  return WEIR_OK;
}

/* Each transport, what it is made of, and what its rendezvous is. */
enum { OVER_TCP = 1, OVER_MPI = 2, OVER_NCCL = 4, SHARES = 8 };
static const struct {
  const char *name, *rendezvous;
  int parts;
} transports[] = {{"tcp", "\"HOST:PORT\" of rank 0", OVER_TCP},
                  {"mixed", "\"HOST:PORT\" of rank 0", OVER_TCP | SHARES},
                  {"auto", "\"HOST:PORT\" of rank 0", OVER_TCP | SHARES},
                  {"shm", "a group name", 0},
                  {"inproc", "a group name", 0},
                  {"nccl", "\"HOST:PORT\" of rank 0", OVER_NCCL},
                  {"nccl+tcp", "\"HOST:PORT\" of rank 0", OVER_NCCL | OVER_TCP},
                  {"shm+nccl", "\"HOST:PORT\" of rank 0", OVER_NCCL | SHARES},
                  {"nccl+mpi", NULL, OVER_NCCL | OVER_MPI},
                  {"mpi", NULL, OVER_MPI},
                  {"shm+mpi", NULL, OVER_MPI | SHARES}};
#define TRANSPORTS (sizeof transports / sizeof *transports)

static size_t find_transport(const char *name) {
  size_t i = 0;
  while (i < TRANSPORTS && strcmp(name, transports[i].name) != 0) i++;
  return i;
}

static bool made_of(const weir_options *options, int part) {
  const size_t i = find_transport(options->transport);
  return i < TRANSPORTS && (transports[i].parts & part) != 0;
}

bool weir_options_over_tcp(const weir_options *options) { return made_of(options, OVER_TCP); }
bool weir_options_over_mpi(const weir_options *options) { return made_of(options, OVER_MPI); }
bool weir_options_over_nccl(const weir_options *options) { return made_of(options, OVER_NCCL); }
bool weir_options_share(const weir_options *options) { return made_of(options, SHARES); }

static weir_status check_max_ranks(const weir_options *options) {
  if (options->max_ranks == 0) return WEIR_OK;
  if (options->max_ranks < options->world_size)
    return weir_fail(WEIR_E_INVALID, "max_ranks is %d; it must be 0, or at least world_size, %d",
                     options->max_ranks, options->world_size);
  if (!weir_options_over_tcp(options) || weir_options_over_nccl(options))
    return weir_fail(WEIR_E_UNSUPPORTED,
                     "transport \"%s\" takes in no ranks once it has started, as max_ranks asks; "
                     "tcp does",
                     options->transport);
  return WEIR_OK;
}

static weir_status check_nonfinite(const weir_options *options) {
  const char *what = options->nonfinite != NULL ? options->nonfinite : "(null)";
  if (strcmp(what, "keep") != 0 && strcmp(what, "zero") != 0)
    return weir_fail(WEIR_E_INVALID, "nonfinite is \"%s\"; \"zero\" and \"keep\" are known", what);
  return WEIR_OK;
}

static weir_status check_feedback(const weir_options *options) {
  return options->error_feedback ? WEIR_OK : weir_policy_check_without_feedback(options->policy);
}

/* A socket that others can connect to, where one is handed over. */
static weir_status check_listener(const weir_options *options) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (options->listener == 0) return WEIR_OK;
  if (options->rank != 0)
    return weir_fail(WEIR_E_INVALID, "rank %d has a listener; only rank 0 listens", options->rank);
  if (!weir_options_over_tcp(options))
    return weir_fail(WEIR_E_INVALID, "a listener is of no use to transport \"%s\"",
                     options->transport);
  if (getsockopt(options->listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens)
    return weir_fail(WEIR_E_INVALID, "descriptor %d, the listener, is no socket that listens",
                     options->listener);
  return WEIR_OK;
}

weir_status weir_options_check(const weir_options *options) {
  if (options->world_size < 1)
    return weir_fail(WEIR_E_INVALID, "world_size is %d; at least 1 is needed", options->world_size);
  if (options->rank < 0 || options->rank >= options->world_size)
    return weir_fail(WEIR_E_INVALID, "rank is %d; it must be in 0..%d", options->rank,
                     options->world_size - 1);
  const char *transport = options->transport != NULL ? options->transport : "(null)";
  const size_t known = find_transport(transport);
  if (known == TRANSPORTS)
    return weir_fail(WEIR_E_INVALID,
                     "transport is \"%s\"; expected \"tcp\", \"mixed\", \"shm\", \"auto\", "
                     "\"mpi\", \"shm+mpi\", \"nccl\", \"nccl+tcp\", \"nccl+mpi\", \"shm+nccl\" or "
                     "\"inproc\"",
                     transport);
  const char *place = transports[known].rendezvous;
  const bool met = options->rendezvous != NULL && options->rendezvous[0] != 0;
  if (options->world_size > 1 && place != NULL && !met)
    return weir_fail(WEIR_E_INVALID, "%d ranks need a rendezvous (%s)", options->world_size, place);
  if (!isfinite(options->timeout_s) || options->timeout_s <= 0 || options->timeout_s > 86400)
    return weir_fail(WEIR_E_INVALID, "timeout_s is %g; it must be in (0, 86400]",
                     options->timeout_s);
  if (!(options->momentum_correction >= 0 && options->momentum_correction < 1))
    return weir_fail(WEIR_E_INVALID, "momentum_correction is %g; it must be in [0, 1)",
                     options->momentum_correction);
  if (options->tcp_streams < 1 || options->tcp_streams > WEIR_TCP_STREAMS_MAX)
    return weir_fail(WEIR_E_INVALID, "tcp_streams is %d; it must be in 1..%d", options->tcp_streams,
                     WEIR_TCP_STREAMS_MAX);
  if (options->codec_threads < 1 || options->codec_threads > WEIR_POOL_MOST)
    return weir_fail(WEIR_E_INVALID, "codec_threads is %d; it must be in 1..%d",
                     options->codec_threads, WEIR_POOL_MOST);
  if (!(options->trial_budget >= 0 && options->trial_budget <= 1))
    return weir_fail(WEIR_E_INVALID, "trial_budget is %g; it must be in [0, 1]",
                     options->trial_budget);
  if (options->policy == NULL) return weir_fail(WEIR_E_INVALID, "policy is NULL");
  weir_status status = weir_policy_check(options->policy);
  if (status == WEIR_OK) status = weir_risk_check(options->risk);
  if (status == WEIR_OK) status = weir_update_rule_check(options->update_rule);
  if (status == WEIR_OK && options->warmup_steps > 0)
    status = weir_policy_check_warmup(options->policy);
  if (status == WEIR_OK) status = check_device(options);
  if (status == WEIR_OK) status = check_nonfinite(options);
  if (status == WEIR_OK) status = weir_filter_check(options->full_precision);
  if (status == WEIR_OK) status = check_feedback(options);
  if (status == WEIR_OK) status = check_max_ranks(options);
  return status == WEIR_OK ? check_listener(options) : status;
}
