/* How a rank joins a group that runs: it makes itself known to one member, whose table it goes
 * through, and waits on a connection to each until they tell it of the group that has it.  Whatever
 * goes wrong before that, a member that is lost or a group that changes without it, it begins
 * again, with a new number. */
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base.h"
#include "base/log.h"
#include "collectives/transports/tcp_meeting.h"
#include "collectives/transports/tcp_tls.h"

#define RETRY_S 0.05
#define KNOCK_S 1.0 /* for a member to answer */
#define PART_S 1.0  /* between the first and the last that tells of the new group */
#define SPARE_S 2.0
#define MESH_S 5.0 /* for those who join at the same time to find each other */

/* What there is to a member. */
typedef struct contact {
  struct sockaddr_in at;
  int fd; /* -1: nothing */
  tcp_hello hello, challenge;
  bool told; /* of the new group */
} contact;

typedef struct applicant {
  const weir_tcp_options *options;
  tcp *self; /* this rank's listener, datagram socket and keys */
  double deadline_s;
  uint64_t number;
  int size; /* of the group, whose members these are */
  uint64_t generation;
  contact *member;
  tcp_hello welcome; /* the new group's, with its table */
  tcp_table_entry *table;
  bool passed_over; /* an address of the list, as has been logged */
  bool refused;
  char why[256]; /* somebody has refused this rank, or nobody was there */
} applicant;

static void hang_up(applicant *a) {
  for (int r = 0; r < a->size; r++)
    if (a->member[r].fd >= 0) (void)close(a->member[r].fd);
  free(a->member);
  free(a->table);
  a->member = NULL;
  a->table = NULL;
  a->size = 0;
}

static double soon(const applicant *a, double seconds) {
  const double until_s = weir_now_s() + seconds;
  return until_s < a->deadline_s ? until_s : a->deadline_s;
}

/* --- a member --------------------------------------------------------------------------------- */

/* Why this rank is not let in, to be told unless somebody else lets it in. */
static void note(applicant *a, const contact *c, const char *what, const char *more) {
  char text[INET_ADDRSTRLEN] = "?";
  (void)inet_ntop(AF_INET, &c->at.sin_addr, text, sizeof text);
  a->refused = true;
  (void)snprintf(a->why, sizeof a->why, "who listens at %s:%u %s%s", text, ntohs(c->at.sin_port),
                 what, more);
}

/* False: it has ended, or says something else. */
static bool hear(applicant *a, const contact *c, int kind, tcp_hello *h) {
  if (!tcp_read_all(c->fd, h, sizeof *h, soon(a, KNOCK_S))) return false;
  if (tcp_hello_is(h, kind)) return true;
  if (tcp_hello_is(h, HELLO_REFUSED))
    note(a, c, "refused this rank: ", tcp_refusal(le32toh(h->detail)));
  else
    note(a, c, "is of another version, or not of ours", "");
  return false;
}

/* Where it listens itself is the address by which it reaches the first member. */
static weir_status open_here(applicant *a, int fd) {
  struct sockaddr_in local;
  socklen_t length = sizeof local;
  if (a->self->listener >= 0) return WEIR_OK;
  if (getsockname(fd, (struct sockaddr *)&local, &length) != 0)
    return weir_fail(WEIR_E_IO, "a connection has no name");
  return tcp_open_own(a->self, local.sin_addr, a->deadline_s);
}

static tcp_hello compose(const applicant *a) {
  tcp_hello h = tcp_compose(a->self, HELLO_JOIN, a->number);
  h.size = htole32((uint32_t)a->options->offer);
  h.rank = htole32((uint32_t)(a->options->offer >> 32));
  tcp_hello_seal(&h);
  return h;
}

/* Proves itself, and hears which group that is. */
static bool introduce(applicant *a, contact *c, tcp_hello *group) {
  char users[TCP_USERS_MAX];
  c->hello = compose(a);
  if (!tcp_write_all(c->fd, &c->hello, sizeof c->hello, soon(a, KNOCK_S)) ||
      !hear(a, c, HELLO_CHALLENGE, &c->challenge))
    return false;
  const tcp_owner owner = a->self->secret ? TCP_OWN : tcp_owner_of(c->fd);
  if (owner == TCP_CLOSED) return false;
  if (owner == TCP_OTHERS) {
    tcp_tell_users(c->fd, users);
    note(a, c, "is another user, and this job has no secret", users);
    return false;
  }
  tcp_hello proof = tcp_compose(a->self, HELLO_PROOF, 0);
  tcp_prove_caller(&a->self->key, &c->hello, &c->challenge, proof.proof);
  tcp_hello_seal(&proof);
  return tcp_write_all(c->fd, &proof, sizeof proof, soon(a, KNOCK_S)) &&
         hear(a, c, HELLO_GROUP, group);
}

/* *table is NULL when it has not come to that. */
static weir_status knock(applicant *a, contact *c, tcp_hello *group, tcp_table_entry **table) {
  struct sockaddr_in from = {.sin_family = AF_INET};
  const char *bind_address = a->options->bind_address;
  *table = NULL;
  if (bind_address && inet_pton(AF_INET, bind_address, &from.sin_addr) != 1)
    return weir_fail(WEIR_E_INVALID, "local address \"%s\" is not an IPv4 address", bind_address);
  weir_status status =
      tcp_connect_once(&c->at, bind_address ? &from : NULL, soon(a, KNOCK_S), &c->fd);
  if (status == WEIR_OK && c->fd >= 0) status = open_here(a, c->fd);
  if (status != WEIR_OK || c->fd < 0 || !introduce(a, c, group)) return status;
  const uint32_t size = le32toh(group->size);
  if (size < 1 || size > WEIR_RANKS_MAX || le32toh(group->rank) >= size) return WEIR_OK;
  if (tcp_read_table(a->self, c->fd, &c->hello, &c->challenge, group, size, soon(a, KNOCK_S),
                     table) != WEIR_OK)
    note(a, c, "does not know this job's secret", "");
  return WEIR_OK;
}

/* --- all members ------------------------------------------------------------------------------ */

/* The first of a name's addresses at which somebody lets this rank in. */
static weir_status find_at(applicant *a, const char *where, const tcp_places *places, contact *c,
                           tcp_hello *group, tcp_table_entry **table) {
  weir_status status = WEIR_OK;
  for (size_t i = 0; status == WEIR_OK && *table == NULL && i < places->count; i++) {
    if (c->fd >= 0) (void)close(c->fd);
    *c = (contact){.fd = -1, .at = places->at[i]};
    status = tcp_check_place(a->self, &c->at, where);
    if (status == WEIR_OK) status = knock(a, c, group, table);
  }
  return status;
}

/* The first in the list that lets this rank in; c->fd is -1 when none does.  A name that leads
 * nowhere is of a member that is gone, if others are known. */
static weir_status find_first(applicant *a, contact *c, tcp_hello *group, tcp_table_entry **table) {
  char *list = strdup(a->options->rendezvous), *rest = list;
  weir_status status = list ? WEIR_OK : weir_fail(WEIR_E_NOMEM, "no memory for addresses");
  weir_status unknown = WEIR_OK;
  bool known = false;
  for (const char *where; status == WEIR_OK && *table == NULL && (where = strsep(&rest, ","));) {
    tcp_places places;
    unknown = tcp_resolve(where, soon(a, KNOCK_S), &places);
    if (unknown == WEIR_OK) status = find_at(a, where, &places, c, group, table);
    if (unknown != WEIR_OK && !a->passed_over)
      weir_log(WEIR_LOG_WARN, "no member can be at one of the addresses: %s", weir_last_error());
    known = known || unknown == WEIR_OK;
    a->passed_over = a->passed_over || unknown != WEIR_OK;
  }
  free(list);
  return known || status != WEIR_OK ? status : unknown;
}

/* Member r, who must tell of the same group. */
static weir_status go_to(applicant *a, int r, bool *in) {
  contact *c = &a->member[r];
  tcp_table_entry *table = NULL;
  tcp_hello group;
  const weir_status status = knock(a, c, &group, &table);
  *in = table != NULL && le32toh(group.size) == (uint32_t)a->size &&
        le32toh(group.rank) == (uint32_t)r && le64toh(group.generation) == a->generation;
  free(table);
  return status;
}

/* *in: all members have let this rank in, and know it. */
static weir_status apply(applicant *a, bool *in) {
  contact first = {.fd = -1};
  tcp_hello group;
  tcp_table_entry *table = NULL;
  *in = false;
  if (getrandom(&a->number, sizeof a->number, 0) != (ssize_t)sizeof a->number)
    return weir_fail(WEIR_E_IO, "no random number");
  weir_status status = find_first(a, &first, &group, &table);
  if (status != WEIR_OK || table == NULL) {
    if (first.fd >= 0) (void)close(first.fd);
    return status;
  }
  const int size = (int)le32toh(group.size), teller = (int)le32toh(group.rank);
  a->member = calloc((size_t)size, sizeof *a->member);
  if (a->member == NULL) {
    (void)close(first.fd);
    free(table);
    return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", size);
  }
  a->size = size;
  a->generation = le64toh(group.generation);
  for (int r = 0; r < size; r++)
    a->member[r] = (contact){
        .fd = -1,
        .at = {
            .sin_family = AF_INET, .sin_addr = table[r].address, .sin_port = table[r].data_port}};
  free(table);
  a->member[teller] = first;
  *in = true;
  for (int r = 0; status == WEIR_OK && *in && r < size; r++)
    if (r != teller) status = go_to(a, r, in);
  tcp_hello here = tcp_compose(a->self, HELLO_HERE, a->number);
  for (int r = 0; status == WEIR_OK && *in && r < size; r++)
    *in = tcp_write_all(a->member[r].fd, &here, sizeof here, soon(a, KNOCK_S));
  return status;
}

/* --- until they take it in -------------------------------------------------------------------- */

static bool is_same(const applicant *a, const tcp_hello *h) {
  return h->rank == a->welcome.rank && h->size == a->welcome.size &&
         memcmp(h->nonce, a->welcome.nonce, sizeof h->nonce) == 0;
}

/* The new group, as a member tells of it: false when that cannot be. */
static bool take_table(applicant *a, contact *c, const tcp_hello *h) {
  const uint32_t size = le32toh(h->size), rank = le32toh(h->rank);
  tcp_table_entry *table = NULL;
  if (size > WEIR_RANKS_MAX || rank >= size || rank < (uint32_t)a->size ||
      le64toh(h->generation) != a->generation + 1 || (a->table && !is_same(a, h)) ||
      tcp_read_table(a->self, c->fd, &c->hello, &c->challenge, h, size, weir_now_s() + KNOCK_S,
                     &table) != WEIR_OK ||
      table == NULL)
    return false;
  if (a->table == NULL) {
    a->table = table;
    a->welcome = *h;
  } else {
    free(table);
  }
  c->told = true;
  return true;
}

/* What a member says: it asks whether this rank is there, or tells of the group that has it. */
static bool listen_to(applicant *a, contact *c) {
  const double spare_s = 3 * a->options->timeout_s + SPARE_S;
  tcp_hello h;
  if (!tcp_read_all(c->fd, &h, sizeof h, weir_now_s() + KNOCK_S)) return false;
  if (tcp_hello_is(&h, HELLO_TABLE)) return take_table(a, c, &h);
  if (!tcp_hello_is(&h, HELLO_CALL)) return false;
  h = tcp_compose(a->self, HELLO_HERE, a->number);
  /* They now decide, and this rank must not leave meanwhile. */
  if (a->deadline_s < weir_now_s() + spare_s) a->deadline_s = weir_now_s() + spare_s;
  return tcp_write_all(c->fd, &h, sizeof h, weir_now_s() + KNOCK_S);
}

/* *taken: this rank is of the new group.  It is not when a member hangs up before any has told: the
 * group changes without it. */
static weir_status attend(applicant *a, bool *taken) {
  struct pollfd *fds = calloc((size_t)a->size, sizeof *fds);
  double until_s = a->deadline_s;
  bool waits = true;
  *taken = false;
  if (fds == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", a->size);
  while (waits && weir_now_s() < until_s) {
    for (int r = 0; r < a->size; r++) {
      const contact *c = &a->member[r];
      fds[r] = (struct pollfd){.fd = c->told ? -1 : c->fd, .events = POLLIN};
    }
    (void)tcp_poll_until(fds, (size_t)a->size, until_s);
    waits = false;
    for (int r = 0; r < a->size; r++) {
      contact *c = &a->member[r];
      if (fds[r].revents && !listen_to(a, c)) {
        (void)close(c->fd);
        c->fd = -1;
      }
      if (c->fd < 0 && a->table == NULL) { /* a member that is silent is not to be waited for */
        waits = false;
        break;
      }
      waits = waits || (c->fd >= 0 && !c->told);
    }
    if (a->table == NULL) until_s = a->deadline_s;
    if (a->table != NULL && !*taken) until_s = weir_now_s() + PART_S;
    *taken = a->table != NULL;
  }
  free(fds);
  return WEIR_OK;
}

/* --- the new group ---------------------------------------------------------------------------- */

static weir_status meet_others(const applicant *a, tcp *made) {
  tcp_meeting *m = NULL;
  const double patience_s = a->options->timeout_s < MESH_S ? a->options->timeout_s : MESH_S;
  weir_status status = tcp_meeting_open(&m, made, made->listener, HELLO_MESH, made->generation);
  if (status != WEIR_OK) return status;
  status = tcp_gather(m, &a->self->peer[0].data, a->size, weir_now_s() + patience_s);
  if (status == WEIR_E_TIMEOUT) status = WEIR_OK; /* one of them is lost already */
  for (int r = a->size; status == WEIR_OK && r < made->base.size; r++) {
    made->peer[r].fd = m->arrival[r].fd; /* -1: the first transfer will say so */
    m->arrival[r].fd = -1;
  }
  tcp_meeting_close(m);
  return status;
}

static weir_status enter(applicant *a, tcp **out) {
  tcp *self = a->self, *made = NULL;
  const int size = (int)le32toh(a->welcome.size), rank = (int)le32toh(a->welcome.rank);
  weir_status status = tcp_create(&made, self->job, rank, size, 1);
  if (status != WEIR_OK) return status;
  *out = made;
  made->secret = self->secret;
  tcp_seal_by(made, self->sealed == TCP_PLAIN, self->credentials);
  made->key = self->key;
  made->group_key = weir_key_of_group(&self->key, a->welcome.nonce, TCP_NONCE);
  made->generation = a->generation + 1;
  made->most = a->options->most;
  made->offer = a->options->offer;
  made->listener = self->listener;
  made->udp = self->udp;
  self->listener = self->udp = -1;
  for (int r = 0; r < size; r++) {
    const tcp_table_entry *e = &a->table[r];
    const tcp_peer *own = &self->peer[0];
    tcp_set_peer(&made->peer[r],
                 r == rank     ? own->data.sin_addr
                 : r < a->size ? a->member[r].at.sin_addr
                               : e->address,
                 e->data_port, e->echo_port);
    if (r >= a->size || !a->member[r].told) continue;
    made->peer[r].fd = a->member[r].fd;
    a->member[r].fd = -1;
  }
  status = meet_others(a, made);
  for (int r = 0; status == WEIR_OK && r < size; r++)
    if (made->peer[r].fd >= 0) tcp_settle(made, r);
  if (status == WEIR_OK && made->sealed)
    status = tcp_tls_open(made, weir_now_s() + a->options->timeout_s, false);
  return status == WEIR_OK ? tcp_answerer_start(made) : status;
}

static weir_status too_late(const applicant *a, double wait_s, int seen) {
  if (a->refused) return weir_fail(WEIR_E_MISMATCH, "%s", a->why);
  if (seen > 0)
    return weir_fail(WEIR_E_TIMEOUT, "the group of %d ranks did not take this rank in within %g s",
                     seen, wait_s);
  return weir_fail(WEIR_E_TIMEOUT, "no member of the group was found at %s within %g s",
                   a->options->rendezvous, wait_s);
}

static weir_status join(applicant *a, double wait_s, tcp **out) {
  int seen = 0;
  while (weir_now_s() < a->deadline_s) {
    bool in = false, taken = false;
    a->refused = false;
    weir_status status = apply(a, &in);
    if (status == WEIR_OK && in) status = attend(a, &taken);
    if (status == WEIR_OK && taken) status = enter(a, out);
    if (status != WEIR_OK || taken) return status;
    if (a->size > 0) seen = a->size;
    if (a->refused && !in) break;
    hang_up(a);
    tcp_sleep(RETRY_S);
  }
  return too_late(a, wait_s, seen);
}

weir_status weir_transport_tcp_join(weir_transport **out, const weir_tcp_options *options,
                                    double wait_s, int *members) {
  applicant a = {.options = options, .deadline_s = weir_now_s() + wait_s};
  tcp *made = NULL;
  *out = NULL;
  weir_status status = tcp_create(&a.self, options->job_id, 0, 1, 1);
  if (status != WEIR_OK) return status;
  a.self->secret = options->secret_bytes > 0;
  tcp_seal_by(a.self, options->plain, options->credentials);
  a.self->key = weir_key_of_job(options->secret, options->secret_bytes, options->job_id);
  status = join(&a, wait_s, &made);
  *members = a.size;
  hang_up(&a);
  a.self->base.ops->destroy(&a.self->base);
  if (status != WEIR_OK && made) made->base.ops->destroy(&made->base);
  if (status == WEIR_OK) *out = &made->base;
  return status;
}
