/* `weir probe`: latency and bandwidth between hosts, found the way a session finds them at its
 * start: echoes, an iperf3 test and trains of messages, put together by the network monitor; and,
 * for the cost rows, what messages and bytes cost the processors. */
#include <glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "collectives/calibrate.h"
#include "lab/doc.h"
#include "session/state.h"

#define ECHOES 5
#define RANKS_MOST 64
#define TIMEOUT_MOST_S 3600.0

typedef struct arguments {
  char *serve, *connect, *rendezvous, *bind, *job;
  int rank, ranks;
  double timeout_s;
  gboolean json;
} arguments;

/* What a rank tells all others; between processes of one program, in the machine's own form. */
typedef struct finding {
  double latency_s, latency_error, bandwidth, bandwidth_error; /* to the next rank; 0: unknown */
  double round_trip_s[RANKS_MOST];                             /* to each rank; 0: unknown */
} finding;

static int refuse(const char *what, const char *expected) {
  fprintf(stderr, "weir probe: %s: expected %s\n", what, expected);
  return WEIR_EXIT_USAGE;
}

static gboolean is_place(const char *text) {
  const char *colon = strrchr(text, ':');
  gint64 port = 0;
  return colon && colon != text && g_ascii_string_to_signed(colon + 1, 10, 1, 65535, &port, NULL);
}

/* Who is this rank, and where do all meet?  --serve and --connect are the ranks of a group
 * of two. */
static int settle(arguments *a) {
  if ((a->serve != NULL) + (a->connect != NULL) + (a->rendezvous != NULL) != 1)
    return refuse("where to meet is missing or given twice",
                  "one of --serve [ADDRESS:]PORT, --connect HOST:PORT and --rendezvous HOST:PORT");
  if (!a->rendezvous && (a->rank != -1 || a->ranks != -1))
    return refuse("--rank, --ranks", "these with --rendezvous only");
  if (a->serve || a->connect) {
    a->rank = a->serve ? 0 : 1;
    a->ranks = 2;
  }
  if (a->ranks < 2 || a->ranks > RANKS_MOST)
    return refuse("--ranks", "2 to 64, the same on all hosts");
  if (a->rank < 0 || a->rank >= a->ranks) return refuse("--rank", "0 to ranks - 1");
  if (!(a->timeout_s > 0 && a->timeout_s <= TIMEOUT_MOST_S))
    return refuse("--timeout-s", "seconds above 0, at most 3600");
  if (a->serve)
    a->rendezvous =
        strchr(a->serve, ':') ? g_strdup(a->serve) : g_strconcat("0.0.0.0:", a->serve, NULL);
  if (a->connect) a->rendezvous = g_strdup(a->connect);
  if (!is_place(a->rendezvous))
    return refuse(a->serve     ? "--serve"
                  : a->connect ? "--connect"
                               : "--rendezvous",
                  a->serve ? "[ADDRESS:]PORT, with a port of 1 to 65535"
                           : "HOST:PORT, with a port of 1 to 65535");
  return WEIR_EXIT_DONE;
}

/* --- measuring ------------------------------------------------------------------------------ */

static weir_status open_session(const arguments *a, weir_session **session) {
  weir_options options;
  weir_options_init(&options);
  options.rank = a->rank;
  options.world_size = a->ranks;
  options.transport = "tcp";
  options.rendezvous = a->rendezvous;
  options.bind_address = a->bind;
  options.job_id = weir_hash(WEIR_HASH_INIT, a->job, strlen(a->job));
  options.timeout_s = a->timeout_s;
  options.policy = "fixed:none:1:dense-ring";
  weir_status status = weir_session_create(session, &options);
  uint32_t tensor = 0;
  if (status == WEIR_OK) status = weir_register_tensor(*session, "probe", 1, &tensor);
  return status == WEIR_OK ? weir_session_start(*session) : status;
}

/* The shortest of some round trips, which nothing has held up. */
static double round_trip(weir_transport *t, int peer, double timeout_s) {
  double least = INFINITY;
  for (int i = 0; i < ECHOES && t->ops->echo; i++) {
    double seconds = 0;
    if (t->ops->echo(t, peer, fmin(1.0, timeout_s), &seconds) == WEIR_OK)
      least = fmin(least, seconds);
  }
  return isfinite(least) ? least : 0;
}

static weir_status measure(weir_session *session, const arguments *a, finding *all,
                           weir_link *link) {
  finding mine = {.latency_s = 0};
  weir_snapshot now;
  weir_feed_collect(session);
  weir_netmon_snapshot(session->feed.monitor, weir_feed_now(session), &now);
  mine.latency_s = now.latency_s;
  mine.latency_error = now.latency_error;
  mine.bandwidth = now.bandwidth;
  mine.bandwidth_error = now.bandwidth_error;
  for (int r = 0; r < a->ranks; r++)
    if (r != a->rank) mine.round_trip_s[r] = round_trip(session->transport, r, a->timeout_s);
  weir_echo_idle(&session->echo, false);
  weir_status status = weir_calibrate(session->comm, link);
  if (status != WEIR_OK) return status;
  return weir_session_gather(session, &mine, sizeof mine, all);
}

/* Faster than a train or a short test can tell: netmon gives such a rate this error or more. */
static bool is_bound(const finding *f) { return f->bandwidth > 0 && f->bandwidth_error >= 0.5; }

/* --- results -------------------------------------------------------------------------------- */

static void print_json(const arguments *a, const weir_session *session, const finding *all,
                       const weir_link *link) {
  g_autoptr(JsonBuilder) b = json_builder_new();
  weir_doc_object(b, NULL);
  weir_doc_whole(b, "ranks", a->ranks);
  weir_doc_whole(b, "hosts", weir_comm_hosts(session->comm));
  weir_doc_list(b, "links");
  for (int r = 0; r < a->ranks; r++) {
    weir_doc_object(b, NULL);
    weir_doc_whole(b, "from", r);
    weir_doc_whole(b, "to", (r + 1) % a->ranks);
    weir_doc_number(b, "latency_ms", all[r].latency_s * 1e3);
    weir_doc_number(b, "latency_error", all[r].latency_error);
    weir_doc_number(b, "mbit", all[r].bandwidth * 8e-6);
    weir_doc_number(b, "bandwidth_error", all[r].bandwidth_error);
    weir_doc_flag(b, "mbit_is_bound", is_bound(&all[r]));
    weir_doc_end(b);
  }
  weir_doc_end_list(b);
  weir_doc_list(b, "round_trip_ms");
  for (int r = 0; r < a->ranks; r++) {
    weir_doc_list(b, NULL);
    for (int to = 0; to < a->ranks; to++) weir_doc_number(b, NULL, all[r].round_trip_s[to] * 1e3);
    weir_doc_end_list(b);
  }
  weir_doc_end_list(b);
  weir_doc_object(b, "calibration");
  weir_doc_number(b, "alpha_ms", link->alpha * 1e3);
  weir_doc_number(b, "beta_ns_per_byte", link->beta * 1e9);
  weir_doc_number(b, "inner_alpha_ms", link->inner_alpha * 1e3);
  weir_doc_number(b, "inner_beta_ns_per_byte", link->inner_beta * 1e9);
  weir_doc_number(b, "burst_bytes", link->burst);
  weir_doc_number(b, "message_us", link->message_s * 1e6);
  weir_doc_number(b, "byte_ns", link->byte_s * 1e9);
  weir_doc_number(b, "answer_us", link->answer_s * 1e6);
  weir_doc_number(b, "duplex_beta_ns_per_byte", link->duplex_beta * 1e9);
  weir_doc_number(b, "sum_ns", link->sum_s * 1e9);
  weir_doc_number(b, "sums_ns", link->sums_s * 1e9);
  weir_doc_end(b);
  weir_doc_print(b);
}

static void print_text(const arguments *a, const weir_session *session, const finding *all,
                       const weir_link *link) {
  const int hosts = weir_comm_hosts(session->comm);
  bool bounds = false;
  printf("%d ranks on %d host%s\n\n%4s    %-4s %12s %7s %14s %7s %14s\n", a->ranks, hosts,
         hosts > 1 ? "s" : "", "from", "to", "alpha (ms)", "+-", "rate (Mbit/s)", "+-",
         "round trip");
  for (int r = 0; r < a->ranks; r++) {
    const int to = (r + 1) % a->ranks;
    char rate[32], error[16] = "or more";
    (void)snprintf(rate, sizeof rate, "%.2f", all[r].bandwidth * 8e-6);
    if (is_bound(&all[r]))
      bounds = true;
    else
      (void)snprintf(error, sizeof error, "%.1f%%", 100 * all[r].bandwidth_error);
    printf("%4d -> %-4d %12.3f %6.1f%% %14s %7s %11.3f ms\n", r, to, all[r].latency_s * 1e3,
           100 * all[r].latency_error, rate, error, all[r].round_trip_s[to] * 1e3);
  }
  if (bounds) printf("\nor more: the link is faster than the probe can measure\n");
  printf(
      "\ncalibration: alpha %.3f ms, beta %.3f ns a byte, %.3f with both directions in use, burst "
      "%.0f "
      "bytes; processors: %.1f us a message, %.3f ns a byte, %.3f ns to add one\n",
      link->alpha * 1e3, link->beta * 1e9, link->duplex_beta * 1e9, link->burst,
      link->message_s * 1e6, link->byte_s * 1e9, link->sum_s * 1e9);
}

static int run(const arguments *a) {
  weir_session *session = NULL;
  weir_link link;
  g_autofree finding *all = g_new0(finding, a->ranks);
  weir_status status = open_session(a, &session);
  if (status == WEIR_OK) status = measure(session, a, all, &link);
  if (status != WEIR_OK)
    fprintf(stderr, "weir probe: %s\n", weir_last_error());
  else if (a->json)
    print_json(a, session, all, &link);
  else
    print_text(a, session, all, &link);
  weir_session_free(session);
  return status == WEIR_OK          ? WEIR_EXIT_DONE
         : status == WEIR_E_INVALID ? WEIR_EXIT_USAGE
                                    : WEIR_EXIT_FAILED;
}

int weir_cmd_probe(int argc, char **argv) {
  arguments a = {.rank = -1, .ranks = -1, .timeout_s = 30};
  const GOptionEntry entries[] = {
      {"serve", 0, 0, G_OPTION_ARG_STRING, &a.serve, "wait for the other host here",
       "[ADDRESS:]PORT"},
      {"connect", 0, 0, G_OPTION_ARG_STRING, &a.connect, "the host that serves", "HOST:PORT"},
      {"rendezvous", 0, 0, G_OPTION_ARG_STRING, &a.rendezvous,
       "more than two hosts: where rank 0 listens", "HOST:PORT"},
      {"rank", 0, 0, G_OPTION_ARG_INT, &a.rank, "with --rendezvous: this host's number", "R"},
      {"ranks", 0, 0, G_OPTION_ARG_INT, &a.ranks, "with --rendezvous: how many hosts", "N"},
      {"bind", 0, 0, G_OPTION_ARG_STRING, &a.bind, "local address to use", "ADDRESS"},
      {"job", 0, 0, G_OPTION_ARG_STRING, &a.job,
       "name of this probe; hosts with another are refused (default: probe)", "NAME"},
      {"timeout-s", 0, 0, G_OPTION_ARG_DOUBLE, &a.timeout_s, "longest wait (default 30)", "S"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &a.json, "print JSON", NULL},
      G_OPTION_ENTRY_NULL,
  };
  const cli_help help = {
      "weir probe", NULL, "Finds the latency and bandwidth between hosts, as a session does.",
      "On one host:    weir probe --serve 7700\n"
      "On the other:   weir probe --connect HOST:7700\n"
      "Hosts meet as a session's ranks do: off the loopback the same WEIR_SECRET must be set on\n"
      "all of them, as in `export WEIR_SECRET=something-long`. --serve listens on every address\n"
      "unless one is given. alpha is the one-way latency; the rate counts packet headers, as\n"
      "traffic control does. A rate \"or more\" (mbit_is_bound) is a lower bound.\n"
      "Exit codes: 0 done; 1 the other host did not answer or went away; 2 bad usage."};
  int code = WEIR_EXIT_USAGE;
  if (cli_parse(&help, entries, &argc, &argv)) {
    if (!a.job) a.job = g_strdup("probe");
    code = settle(&a);
    if (code == WEIR_EXIT_DONE) code = run(&a);
  }
  cli_forget(entries);
  return code;
}
