/* Inside of a session: what its files share. */
#ifndef WEIR_SESSION_STATE_H
#define WEIR_SESSION_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <weir/weir.h>

#include "base/base.h"
#include "collectives/collective.h"
#include "collectives/credentials.h"
#include "collectives/secret.h"
#include "controller/controller.h"
#include "engine/engine.h"
#include "netmon/netmon.h"
#include "session/budget.h"
#include "session/inside.h"
#include "session/pace.h"

/* --- background echo ------------------------------------------------------------------------ */

/* A thread that measures the round trip to one peer now and then, rather while the links are idle,
 * and sends it a short train of datagrams at the pace that the session allows.  The session's
 * thread starts it, tells it of idle times, and takes what it found. */
#define WEIR_ECHO_KEPT 32
typedef struct weir_echo_sample {
  double seconds;  /* round trip, or over how long a train arrived */
  double sent;     /* bytes of a train; 0: a round trip */
  double arrived;  /* of a train, after its first datagram; 0: it got lost */
  uint64_t loaded; /* running number of a transfer of ours that was going on meanwhile; 0: none */
} weir_echo_sample;
typedef struct weir_echo {
  weir_transport *transport;
  int peer;
  pthread_t thread;
  bool running; /* the thread exists; only the session's thread looks */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool stop, idle;
  uint64_t busy_turns; /* how often idle times have ended */
  size_t train_bytes;  /* 0: none yet */
  double train_spacing_s;
  weir_echo_sample kept[WEIR_ECHO_KEPT]; /* not yet taken, oldest first */
  int count;
} weir_echo;
weir_status weir_echo_start(weir_echo *echo, weir_transport *transport, int peer);
void weir_echo_idle(weir_echo *echo, bool idle);
/* Send a train of so many bytes every spacing_s. */
void weir_echo_pace(weir_echo *echo, size_t train_bytes, double spacing_s);
/* Move what was found to found[WEIR_ECHO_KEPT]; tells how many. */
int weir_echo_take(weir_echo *echo, weir_echo_sample *found);
void weir_echo_stop(weir_echo *echo); /* fine when it never started */

/* --- what feeds the monitor ----------------------------------------------------------------- */

typedef struct weir_feed {
  weir_netmon *monitor;
  uint32_t flows;           /* of the transport, seen so far */
  weir_tcp_reader *readers; /* per rank */
  uint64_t exchanges;
  bool told_at_start; /* memory, whose rate is known: exchanges and probes are not asked */
  double comm_s;      /* mean over ranks of the exchange before the last */
  weir_cost_terms terms, terms_before;         /* of the last exchange, and of that before it */
  uint32_t latency_changes, bandwidth_changes; /* at the last header */
  char interface_name[16];                     /* "" when cross traffic cannot be told */
  uint64_t link_bytes, own_bytes;              /* at the last look */
  double link_time_s;
  uint64_t step;    /* virtual network: the next step that counts */
  double virtual_s; /* virtual network: time so far */
  weir_rng noise;
} weir_feed;

/* Memory to hand on to the engine, which exists from the start on. */
typedef struct weir_registered_state {
  void *data;
  size_t bytes;
} weir_registered_state;

/* States that ranks have saved, added up, until the start.  In the order of registration. */
typedef struct weir_resume {
  uint64_t committed, turn;
  uint64_t size; /* ranks there were */
  uint64_t count,
      whose; /* how many of them these are, and the sum of the hashes of their numbers */
  bool zero;
  size_t tensors, rank, width;
  size_t *offset, *at; /* tensors + 1, of elements and of powersgd's columns */
  float *residual, *velocity, *columns;
  uint16_t *squares; /* what elements usually are, or NULL */
  uint64_t followed; /* of so many averages */
  weir_plan plan;    /* that was in force, and what was directed */
  weir_plan_bucket *table;
  weir_directive pending;
  double gain;       /* of the last step */
  uint64_t likeness; /* of what the plan holds for; 0: it does not hold here */
  void *controller;  /* what it had learnt, of rank 0; NULL: nothing */
  size_t controller_bytes;
} weir_resume;
/* Of all ranks, before there is an engine: is everything there once?  Ranks that have taken none
 * get counters like the others'.  Then, into the engine. */
typedef struct weir_resume_told {
  uint64_t committed, turn, size, count, whose;
  uint64_t plan; /* digest of the plan that is to go on here; 0: none */
} weir_resume_told;
struct weir_session {
  weir_options options; /* strings are our own copies, below */
  char *transport_name, *rendezvous, *bind_address, *policy, *risk, *journal_path, *full_precision;
  char *update_rule;
  bool rule_adapts, rule_unknown;        /* weir_doubt_update_rule: what it counts as */
  unsigned char secret[WEIR_SECRET_MAX]; /* until the group has met */
  size_t secret_bytes;
  weir_key key;    /* of the job: what else of it proves by, once the secret is forgotten */
  bool has_secret; /* and whether the key is made of one */
  bool plain;      /* messages are not encrypted, with a secret neither */
  weir_credentials *credentials; /* NULL: ranks have no certificates */
  bool shares;                   /* over TCP: ranks of a machine share memory, where they can */
  bool keep_nonfinite;           /* gradients of a step that is lost are NaN, not zero */
  int next, previous;            /* to measure with, on another machine where there is one */

  char **names;    /* of tensors */
  size_t *offset;  /* tensors + 1 */
  size_t *rows;    /* tensors; 1: a vector */
  uint8_t *types;  /* tensors; weir_type */
  uint32_t *place; /* tensor -> its number in the engine; until the start these are the same */
  size_t tensors;
  weir_status table; /* of the policy, which this rank could not read, for that reason */
  char table_text[512];
  size_t full; /* of them, at the engine's end: in full precision under every plan */
  weir_registered_state *states;
  size_t state_count;
  weir_state_hooks *hooks;
  size_t hook_count;

  weir_pace_fn pace; /* session/pace.h */
  void *pace_user;

  weir_resume *resume;          /* NULL: nothing has been loaded */
  weir_resume_told resume_told; /* what the ranks agree on; size 0: nothing */
  uint64_t saved_likeness;      /* of this session, for what it saves (resume.c) */
  bool resume_columns;          /* all ranks have loaded powersgd's columns, which must be alike */

  bool started, start_tried;
  bool missed;         /* a step, and the caller has not been told: weir_shrink failed after that */
  bool grows;          /* all ranks know that the same others wait to join: weir_grow is due */
  weir_helper *helper; /* NULL: none is needed, or it is missing */
  bool helper_missing; /* it could not be started; has been said */
  weir_transport *transport;
  weir_comm *comm;
  weir_engine *engine;
  const struct weir_device_ops *device_ops; /* NULL: steps run in host memory */
  /* The CUDA driver's function of that name, where the process has it; else NULL. */
  int (*pointer_attribute)(void *data, int attribute, unsigned long long pointer);
  bool devices, hosts;         /* some rank's run on a device; in host memory */
  bool rooms;                  /* all ranks' do, and read each other's memory */
  bool rooms_inside;           /* inside of each of several machines */
  bool threads;                /* some rank's codecs have threads */
  uint64_t follows;            /* weir_engine_config's, the most that some rank may ask for */
  uint64_t memory_limit;       /* the smallest of the ranks'; 0: none */
  weir_controller *controller; /* rank 0 only */
  uint32_t epoch;              /* as told, for the controller of the next group */
  double *gap_s;               /* rank 0, with overlap: per tensor, on its way to the controller */
  uint64_t gap_turns;          /* steps since the start */
  weir_feed feed;
  weir_echo echo;
  size_t *gather_bytes; /* per rank */
  uint64_t gathers;     /* all-gathers outside of steps */
  uint64_t pings;       /* messages of weir_ping() */
  weir_probe_budget budget;
  double started_s;        /* when steps could begin */
  double probe_s;          /* time taken by probes between steps */
  bool rate_unsure;        /* the newest thorough probe was not conclusive */
  bool rate_exact;         /* the newest probe told the link's rate, not just a bound of it */
  double probe_bytes_told; /* of budget.spent, in step infos */

  weir_inside inside;
  uint64_t run; /* of this group's meeting, the same on all ranks */

  weir_status broken;
  char broken_text[512];
};

/* What a plan and what was learnt of plans hold for: a policy, over tensors registered like these.
 * Before the start; never 0. */
uint64_t weir_resume_likeness(const weir_session *session);
void weir_resume_tell(const weir_session *session, weir_resume_told *mine);
weir_status weir_resume_agree(weir_session *session, const weir_resume_told *all);
/* *alike: the group goes on under the plan that was in force, so that all that was learnt holds. */
weir_status weir_resume_apply(weir_session *session, bool *alike);
void weir_resume_free(weir_resume *resume);

/* Status kept for every later call when it ends the group; returns status. */
weir_status weir_session_keep_failure(weir_session *session, weir_status status);
/* Out of the group, whose other ranks find it out. */
void weir_session_leave(weir_session *session);
/* WEIR_OK on a started session whose group lives. */
weir_status weir_session_check(const weir_session *session);

/* The options of a caller, whose header may be older, as this library has them. */
weir_status weir_options_take(weir_options *current, const weir_options *callers);
weir_status weir_options_check(const weir_options *options);
/* Does TCP carry messages between its machines? */
bool weir_options_over_tcp(const weir_options *options);
/* Is its group an MPI job? */
bool weir_options_over_mpi(const weir_options *options);
/* Does NCCL carry some of its messages? */
bool weir_options_over_nccl(const weir_options *options);
/* Do its ranks share memory where they share a machine, and can? */
bool weir_options_share(const weir_options *options);

/* The job's secret, if there is one anywhere; and away with it.  Is its text to stay plain, and has
 * this rank a certificate? */
weir_status weir_session_find_secret(weir_session *session, const weir_options *options);
weir_status weir_session_find_tls(weir_session *session, const weir_options *options);
void weir_session_forget_secret(weir_session *session);

/* libweir_cuda, where the options name a device. */
weir_status weir_session_load_device(weir_session *session);
/* A session in host memory cannot use a device's: WEIR_E_INVALID says so.  The driver is looked for
 * at the start. */
void weir_session_find_driver(weir_session *session);
weir_status weir_session_check_host(const weir_session *session, const void *gradient);

/* Join the group over the transport that the options name; sets transport and comm. */
weir_status weir_session_connect(weir_session *session);

/* Which ranks share a machine, and with whom to measure; collective. */
weir_status weir_session_find_hosts(weir_session *session);
/* Do the ranks' devices try to read each other's memory?  Collective where some rank has one;
 * WEIR_E_INVALID: the environment's WEIR_DEVICE_IPC. */
weir_status weir_session_find_rooms(weir_session *session);

/* Ranks that there is to be room for. */
static inline int weir_session_most(const weir_options *options) {
  return options->max_ranks > options->world_size ? options->max_ranks : options->world_size;
}
/* What those who join must have as the members do: a digest. */
uint64_t weir_session_offer(const weir_session *session);
/* A transport that the session has not got from weir_session_connect: everything that follows from
 * the group's size, and which ranks share a machine; collective. */
weir_status weir_session_settle(weir_session *session);
/* The transport of a group that some have joined, or of those who are left of one that has ended,
 * in place of the old one; *joined: so many more than there were.  Where that fails, the old one
 * stays, or all of the new one is there.  The engine has stood by, if there is one.  Collective. */
weir_status weir_session_move(weir_session *session, bool grows, int *joined);
/* After a change of the group: all ranks' standings, made one, and what starts again with it.
 * Collective. */
weir_status weir_session_line_up(weir_session *session, const weir_standing *mine,
                                 weir_survivors *left);

/* Parts of the start, for survivors who start again: the engine's hook of rank 0, its controller
 * (again: its journal goes on; at the step that comes first; alike: with all that a saved one had
 * learnt), and the monitor. */
bool (*weir_session_curve_hook(const weir_session *session))(void *);
/* Once, at the start: tensors in the policy's order, and session->place (order.c). */
weir_status weir_session_order(weir_session *session);
/* Of tensors, as they stand: names, shapes, order, and how many stay in full precision. */
uint64_t weir_session_digest_tensors(const weir_session *session);
weir_status weir_session_start_controller(weir_session *session, bool again, uint64_t step,
                                          bool alike);
weir_status weir_session_start_monitor(weir_session *session);
/* Did all ranks register the same tensors and start with the same plan?  Collective. */
weir_status weir_session_compare(weir_session *session);
/* The plan that the group, whose ranks have been compared, starts with at a step. */
weir_status weir_session_first_plan(const weir_session *session, uint64_t step, weir_plan *first);
/* Those that a group begins with that has lost ranks, or that this rank joins: the first of them
 * that it can run.  A schedule has all of its stages, every other policy its one plan. */
weir_status weir_session_first_plans(const weir_session *session, uint64_t step,
                                     weir_plan first[WEIR_STAGES_MAX], size_t *count);
/* Do the plans that the policy runs whatever they cost keep to memory_limit?  WEIR_E_UNSUPPORTED,
 * with both figures. */
weir_status weir_session_check_memory(const weir_session *session);
weir_status weir_session_create_engine(weir_session *session);

/* All-gather in a namespace of its own; mine and all as in weir_allgather_bytes. */
weir_status weir_session_gather(weir_session *session, const void *mine, size_t bytes, void *all);

weir_status weir_feed_open(weir_session *session);
void weir_feed_close(weir_session *session);
void weir_feed_echo(weir_session *session, double rtt_s, uint64_t loaded);
/* A round trip that others have confirmed, with the links idle. */
void weir_feed_idle(weir_session *session, double rtt_s);
/* What a train of datagrams tells of a link that has become faster. */
void weir_feed_train(weir_session *session, double bytes, double seconds);
/* error: relative; 0: needs no witness. */
void weir_feed_probe(weir_session *session, double bytes_s, double error);
/* Leave out what has arrived since the last look. */
void weir_feed_skip_flows(weir_session *session);
/* Samples that have come up since the last call. */
void weir_feed_collect(weir_session *session);
/* After an exchange. */
void weir_feed_exchange(weir_session *session, const weir_header *headers, int ranks,
                        const weir_step_record *record);
double weir_feed_now(const weir_session *session);

/* The two shortest round trips to the next rank, by messages; collective. */
weir_status weir_ping(weir_session *session, double *shortest_s, double *second_s);
/* Measure at start, and on WEIR_ACTION_PROBE and _LOOK; collective where the transport has no echo,
 * and at start. */
weir_status weir_probe_start(weir_session *session);
/* Let the background trains go on as suits what is known. */
void weir_probe_pace(weir_session *session, const weir_snapshot *now);
/* Could this rank afford a probe now? */
bool weir_probe_affordable(const weir_session *session);
weir_status weir_probe_run(weir_session *session, bool thorough);
/* The same on all ranks, none of which goes on before all have measured. */
weir_status weir_probe_together(void *session, bool thorough);

#endif
