/* One side of an iperf3 test.  libiperf has global timers and errors and may call exit(), so each
 * test has its own process. */
#include "netprobe/netprobe.h"

#include <iperf_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_BLOCK = 16384, CONNECT_MS = 1000 };

_Noreturn void iperf_server_child(const weir_helper_request *request) {
  struct iperf_test *test = iperf_new_test();
  if (!test || iperf_defaults(test) < 0) _exit(1);
  iperf_set_test_role(test, 's');
  iperf_set_test_bind_address(test, request->name);
  iperf_set_test_server_port(test, request->port);
  iperf_set_test_json_output(test, 1);
  iperf_set_test_logfile(test, "/dev/null");
  for (;;) {
    if (iperf_run_server(test) < -1) _exit(1);
    iperf_reset_test(test);
  }
}

static void answer(iperf_result *result, weir_status status, bool again, const char *text) {
  result->status = status;
  result->again = again;
  (void)snprintf(result->text, sizeof result->text, "%s", text);
}

/* What stands after "key": in the object that starts at json; NULL: nothing does. */
static const char *value_after(const char *json, const char *key) {
  const char *at = json ? strstr(json, key) : NULL;
  return at ? at + strlen(key) + strspn(at + strlen(key), ": \t") : NULL;
}

/* Negative when there is none. */
static double number_after(const char *json, const char *key) {
  const char *at = value_after(json, key);
  char *end;
  if (!at) return -1;
  const double value = strtod(at, &end);
  return end == at ? -1 : value;
}

void iperf_client_test(const weir_helper_request *request, iperf_result *result) {
  memset(result, 0, sizeof *result);
  struct iperf_test *test = iperf_new_test();
  if (!test || iperf_defaults(test) < 0) {
    answer(result, WEIR_E_NOMEM, false, "iperf3 cannot start a test");
    return;
  }
  iperf_set_test_role(test, 'c');
  iperf_set_test_server_hostname(test, request->name);
  iperf_set_test_server_port(test, request->port);
  iperf_set_test_connect_timeout(test, CONNECT_MS);
  iperf_set_test_duration(test, 0);
  iperf_set_test_bytes(test, request->bytes);
  if (request->bytes < DEFAULT_TCP_BLKSIZE) iperf_set_test_blksize(test, SMALL_BLOCK);
  iperf_set_test_reporter_interval(test, 0);
  iperf_set_test_stats_interval(test, 0);
  iperf_set_test_json_output(test, 1);
  iperf_set_test_logfile(test, "/dev/null");
  const int code = iperf_run_client(test);
  const char *json = iperf_get_test_json_output_string(test);
  /* A failed client says 0 all the same; then the report has an "error". */
  const char *error = value_after(json, "\"error\"");
  if (code < 0 || !json || error) {
    char text[sizeof result->text];
    error = error ? error + strspn(error, "\"") : iperf_strerror(i_errno);
    (void)snprintf(text, sizeof text, "iperf3 to %s port %d: %.*s", request->name,
                   (int)request->port, (int)strcspn(error, "\"\n}"), error);
    answer(result, WEIR_E_IO, true, text);
    return;
  }
  /* The sender's figure counts what went into socket buffers; the receiver's is the link's. */
  const char *received = strstr(json, "\"sum_received\"");
  const double bits_s = number_after(received, "\"bits_per_second\"");
  if (!(bits_s > 0) || bits_s > 1e14) {
    /* The end of a short test on a fast link can overtake its bytes: then none were received. */
    answer(result, WEIR_E_IO, true, "iperf3 reported no rate");
    return;
  }
  result->bandwidth = bits_s / 8;
}
