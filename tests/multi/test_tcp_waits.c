/* How the TCP transport waits: for lumps of what is long, awake only for a moment, and over
 * connections that are not paced where round trips are short. */
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "collectives/transports/tcp.h"
#include "wire_bytes.h"

/* Two ranks, threads of this process. */
typedef struct pair {
  char where[64];
  weir_transport *t[2];
  unsigned char *data;
  size_t bytes;
  double processor_s; /* of the thread that received */
  weir_status status;
} pair;

typedef struct join {
  pair *p;
  int rank;
  const char *address;
} join;

static void *join_main(void *argument) {
  const join *j = argument;
  cr_assert_eq(weir_transport_tcp(&j->p->t[j->rank], j->p->where, j->address, 5, j->rank, 2, 20.0),
               WEIR_OK, "%s", weir_last_error());
  return NULL;
}

static void connect_pair(pair *p, const char *address_of_1) {
  pthread_t other;
  join one = {p, 1, address_of_1}, zero = {p, 0, "127.0.0.1"};
  (void)snprintf(p->where, sizeof p->where, "127.0.0.1:%d", free_port());
  cr_assert_eq(pthread_create(&other, NULL, join_main, &one), 0);
  (void)join_main(&zero);
  (void)pthread_join(other, NULL);
}

static void part(pair *p) {
  for (int r = 0; r < 2; r++) p->t[r]->ops->destroy(p->t[r]);
}

/* Rank 1 receives `bytes` from rank 0. */
static void *receive_main(void *argument) {
  pair *p = argument;
  weir_recv recv = {0, p->data, p->bytes, 0, 0};
  struct rusage begin, end;
  (void)getrusage(RUSAGE_THREAD, &begin);
  p->status = p->t[1]->ops->transfer(p->t[1], &due, NULL, 0, &recv, 1, weir_now_s() + 20.0);
  (void)getrusage(RUSAGE_THREAD, &end);
  const double us = 1e6 * (double)(end.ru_utime.tv_sec - begin.ru_utime.tv_sec +
                                   end.ru_stime.tv_sec - begin.ru_stime.tv_sec) +
                    (double)(end.ru_utime.tv_usec - begin.ru_utime.tv_usec + end.ru_stime.tv_usec -
                             begin.ru_stime.tv_usec);
  p->processor_s = 1e-6 * us;
  return NULL;
}

static int unread(int fd) {
  int bytes = -1;
  cr_assert_eq(ioctl(fd, FIONREAD, &bytes), 0);
  return bytes;
}

static int option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  cr_assert_eq(getsockopt(fd, level, name, &value, &length), 0);
  return value;
}

/* All has been read, and so much more is asked for at once. */
static void await_lump(int fd, int lump) {
  for (int i = 0; i < 2000; i++) {
    if (unread(fd) == 0 && option(fd, SOL_SOCKET, SO_RCVLOWAT) == lump) return;
    group_nap(0.005);
  }
  cr_assert_fail("%d bytes unread, %d asked for, not %d", unread(fd),
                 option(fd, SOL_SOCKET, SO_RCVLOWAT), lump);
}

/* What is less than was asked for stays where it is: nobody is woken for it. */
static void is_left(int fd, int bytes) {
  group_nap(0.12); /* the receiver looks at its clock meanwhile */
  cr_assert_eq(unread(fd), bytes, "%d of %d bytes are left", unread(fd), bytes);
}

Test(waits, long_messages_are_taken_in_lumps) {
  enum { WHOLE = 1000 + 65536 + 10000 - TRAILER };
  static unsigned char sent[FRAME + WHOLE + TRAILER], got[WHOLE];
  pair p = {.data = got, .bytes = WHOLE};
  connect_pair(&p, "127.0.0.1");
  const int out = p.t[0]->ops->descriptor(p.t[0], 1), in = p.t[1]->ops->descriptor(p.t[1], 0);
  write_frame(sent, 0, WHOLE);
  for (int i = 0; i < WHOLE; i++) sent[FRAME + i] = (unsigned char)(i * 7 + (i >> 9));
  close_frame(sent, WHOLE);
  pthread_t receiver;
  cr_assert_eq(pthread_create(&receiver, NULL, receive_main, &p), 0);
  size_t at = 0;
#define SEND(count) (send_all(out, sent + at, count), at += (count))
  SEND(FRAME + 1000); /* a first look at the message */
  await_lump(in, 65536);
  SEND(20000);
  is_left(in, 20000);
  SEND(45536); /* what is left is less than a lump */
  await_lump(in, 10000);
  SEND(9999);
  is_left(in, 9999);
  SEND(1);
  (void)pthread_join(receiver, NULL);
  cr_assert_eq(p.status, WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(memcmp(got, sent + FRAME, WHOLE), 0);
  /* A short one is told of at once again. */
  p.bytes = PAYLOAD;
  cr_assert_eq(pthread_create(&receiver, NULL, receive_main, &p), 0);
  await_lump(in, 1);
  write_frame(sent, 0, PAYLOAD);
  payload(sent);
  send_all(out, sent, FRAME + PAYLOAD + TRAILER);
  (void)pthread_join(receiver, NULL);
  cr_assert_eq(p.status, WEIR_OK);
  part(&p);
}

/* Ten short messages, each 100 ms late: a rank that waited awake all the time would use a second
 * of a processor. */
Test(waits, awake_for_a_moment_only) {
  unsigned char sent[FRAME + PAYLOAD + TRAILER], got[PAYLOAD];
  pair p = {.data = got, .bytes = PAYLOAD};
  connect_pair(&p, "127.0.0.1");
  double processor_s = 0.0;
  for (int i = 0; i < 10; i++) {
    pthread_t receiver;
    cr_assert_eq(pthread_create(&receiver, NULL, receive_main, &p), 0);
    group_nap(0.1);
    write_frame(sent, 0, PAYLOAD);
    payload(sent);
    send_all(p.t[0]->ops->descriptor(p.t[0], 1), sent, sizeof sent);
    (void)pthread_join(receiver, NULL);
    cr_assert_eq(p.status, WEIR_OK);
    cr_assert_eq(memcmp(got, sent + FRAME, PAYLOAD), 0);
    processor_s += p.processor_s;
  }
  cr_assert_lt(processor_s, 0.25, "%g s", processor_s);
  part(&p);
}

static void control_of(int fd, char name[16]) {
  socklen_t length = 16;
  cr_assert_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
}

/* Where round trips are short, be it between machines, nothing is to be paced. */
Test(waits, connections_with_short_round_trips_are_not_paced) {
  static const char *const address[] = {"127.0.0.1", "127.0.0.2"};
  char used[16];
  for (int i = 0; i < 2; i++) {
    pair p = {.bytes = 0};
    connect_pair(&p, address[i]);
    for (int r = 0; r < 2; r++) {
      const int fd = p.t[r]->ops->descriptor(p.t[r], 1 - r);
      control_of(fd, used);
      cr_assert_str_eq(used, "reno", "rank %d at %s: %s", r, address[i], used);
      cr_assert_eq(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    }
    part(&p);
  }
}

/* A window of Reno's comes back slowly there, and of an unknown link nothing is assumed. */
Test(waits, long_or_unknown_round_trips_leave_the_choice_to_the_system) {
  cr_assert_null(tcp_congestion_control(false, 0));
  cr_assert_null(tcp_congestion_control(false, 2001));
  cr_assert_null(tcp_congestion_control(false, 100000));
  cr_assert_str_eq(tcp_congestion_control(false, 2000), "reno");
  cr_assert_str_eq(tcp_congestion_control(true, 0), "reno");
}

/* --- what goes both ways ---------------------------------------------------------------------- */

#define LONG ((size_t)24 << 20) /* more than the sockets of both ends hold */

typedef struct swap {
  pair *p;
  int rank, sends, recvs;
  double nap_s;
  weir_status status;
} swap;

static void *swap_main(void *argument) {
  swap *s = argument;
  weir_transport *t = s->p->t[s->rank];
  const int peer = 1 - s->rank;
  unsigned char *const in = s->p->data + 2 * LONG * (size_t)s->rank;
  const unsigned char *const out = s->p->data + 4 * LONG; /* of either */
  const weir_send send[2] = {{peer, out, LONG, 0}, {peer, out, LONG, 1}};
  weir_recv recv[2] = {{peer, in, LONG, 0, 0}, {peer, in + LONG, LONG, 1, 0}};
  group_nap(s->nap_s);
  s->status = t->ops->transfer(t, &due, send, (size_t)s->sends, recv, (size_t)s->recvs,
                               weir_now_s() + 20.0);
  return NULL;
}

static void swap_both(pair *p, int of_1) {
  pthread_t thread[2];
  swap s[2] = {{p, 0, 2, of_1, 0.0, WEIR_OK}, {p, 1, of_1, 2, 0.1, WEIR_OK}};
  for (int r = 0; r < 2; r++) cr_assert_eq(pthread_create(&thread[r], NULL, swap_main, &s[r]), 0);
  for (int r = 0; r < 2; r++) (void)pthread_join(thread[r], NULL);
  for (int r = 0; r < 2; r++) cr_assert_eq(s[r].status, WEIR_OK, "rank %d", r);
}

/* Rank 1 is late: rank 0 has to wait until there is room again for what it sends.  Messages that
 * come together have places where a rank has sent as many.  One of which a single read brings all
 * tells nothing, so that it may take more than one time. */
Test(waits, for_room_and_tells_what_came_together) {
  pair p;
  connect_pair(&p, "127.0.0.1");
  p.data = calloc(5, LONG);
  cr_assert_not_null(p.data);
  const weir_transport *of = p.t[1];
  swap_both(&p, 1);
  for (uint32_t i = 0; i < of->flows; i++) cr_assert_eq(of->flow[i].place, 0, "%u", i);
  uint32_t told = 0;
  for (int time = 0; told < 2 && time < 10; time++) {
    const uint32_t before = of->flows;
    swap_both(&p, 2);
    told = of->flows - before;
    for (uint32_t i = 0; i < told; i++) cr_assert_eq(of->flow[before + i].place, i, "%u", i);
  }
  cr_assert_eq(told, 2);
  part(&p);
  free(p.data);
}

/* Nothing is sent any more once the end of the group has come, though there were room for it. */
Test(waits, for_nothing_once_the_group_has_ended) {
  pair p;
  weir_end end = {WEIR_OK, -1, -1};
  const unsigned char byte = 1;
  const weir_send send = {1, &byte, 1, 0};
  connect_pair(&p, "127.0.0.1");
  p.t[1]->ops->abort(p.t[1], 1);
  for (int i = 0; i < 1000 && !tcp_abort_seen((tcp *)p.t[0], &end); i++) group_nap(0.005);
  const weir_status status =
      p.t[0]->ops->transfer(p.t[0], &due, &send, 1, NULL, 0, weir_now_s() + 20.0);
  cr_assert_eq(status, WEIR_E_PEER, "%s", weir_status_name(status));
  part(&p);
}
