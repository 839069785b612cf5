/* Round trips by messages, for transports that have no echo of their own.  Only between steps, when
 * all ranks are here: within a step nobody would answer at once. */
#include <math.h>

#include "session/state.h"

#define ROUNDS 3

weir_status weir_ping(weir_session *session, double *shortest_s, double *second_s) {
  static const char name[] = "weir ping";
  weir_transport *t = session->transport;
  unsigned char out[2] = {0}, in[2];
  *shortest_s = *second_s = INFINITY;
  for (int i = 0; i < 2 * ROUNDS; i++) { /* even ranks ask the next one, then odd ones do */
    const weir_tag tag = {weir_hash(WEIR_HASH_INIT, name, sizeof name), session->pings++, 0, 0};
    const weir_send question = {session->next, &out[0], 1, 0},
                    answer = {session->previous, &out[1], 1, 1};
    weir_recv asked = {session->previous, &in[0], 1, 0, 0},
              answered = {session->next, &in[1], 1, 1, 0};
    const size_t ask = t->rank % 2 == i % 2, reply = session->previous % 2 == i % 2;
    const double begin_s = weir_now_s(), deadline_s = begin_s + session->options.timeout_s;
    weir_status status = t->ops->transfer(t, &tag, &question, ask, &asked, reply, deadline_s);
    if (status == WEIR_OK)
      status = t->ops->transfer(t, &tag, &answer, reply, &answered, ask, deadline_s);
    if (status != WEIR_OK) return status;
    const double rtt_s = weir_now_s() - begin_s;
    if (ask == 0) continue;
    *second_s = fmin(*second_s, fmax(*shortest_s, rtt_s));
    *shortest_s = fmin(*shortest_s, rtt_s);
  }
  return WEIR_OK;
}
