/* Without a secret ranks meet on the loopback, where any local user may call: whose is the other
 * end? */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transports/tcp.h"

#define ESTABLISHED 1u

typedef struct entry {
  uint32_t address, other_address; /* in network order */
  unsigned port, other_port, state, user;
  uint64_t inode; /* 0: no process has it (any more), and the user says nothing */
} entry;

static bool parse(const char *line, entry *e) {
  return sscanf(line,
                "%*u: %8" SCNx32 ":%4x %8" SCNx32 ":%4x %2x %*x:%*x %*x:%*x %*x %u %*u %" SCNu64,
                &e->address, &e->port, &e->other_address, &e->other_port, &e->state, &e->user,
                &e->inode) == 7;
}

typedef struct ends {
  struct sockaddr_in own, other;
} ends;

static bool ends_of(int fd, ends *e) {
  socklen_t own = sizeof e->own, other = sizeof e->other;
  return getsockname(fd, (struct sockaddr *)&e->own, &own) == 0 &&
         getpeername(fd, (struct sockaddr *)&e->other, &other) == 0;
}

/* The kernel knows both ends of a connection on the loopback, each with the user who made it.  It
 * is asked for the other end alone (sock_diag(7)).  *searched false: it does not answer. */
static bool ask(const ends *e, unsigned *user, bool *searched) {
  struct {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
  } request = {.head = {.nlmsg_len = sizeof request,
                        .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                        .nlmsg_flags = NLM_F_REQUEST},
               .body = {.sdiag_family = AF_INET,
                        .sdiag_protocol = IPPROTO_TCP,
                        .idiag_states = UINT32_MAX,
                        .id = {.idiag_sport = e->other.sin_port,
                               .idiag_dport = e->own.sin_port,
                               .idiag_src = {e->other.sin_addr.s_addr},
                               .idiag_dst = {e->own.sin_addr.s_addr},
                               .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
  struct {
    struct nlmsghdr head;
    union {
      struct inet_diag_msg body;
      struct nlmsgerr error;
    } as;
    unsigned char more[1024];
  } reply;
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  ssize_t got = -1; /* the answer is there when send() returns */
  if (fd >= 0 && send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request)
    got = recv(fd, &reply, sizeof reply, MSG_DONTWAIT);
  if (fd >= 0) (void)close(fd);
  const size_t room = got < (ssize_t)sizeof reply.head ? 0 : (size_t)got - sizeof reply.head;
  if (room >= sizeof reply.as.error && reply.head.nlmsg_type == NLMSG_ERROR)
    *searched = reply.as.error.error == -ENOENT;
  if (room < sizeof reply.as.body || reply.head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return false;
  const struct inet_diag_msg *m = &reply.as.body;
  *searched = true;
  *user = m->idiag_uid; /* who listens there is found where the connection has ended */
  return m->idiag_state == ESTABLISHED && m->idiag_inode != 0 &&
         m->id.idiag_sport == e->other.sin_port && m->id.idiag_dport == e->own.sin_port &&
         m->id.idiag_src[0] == e->other.sin_addr.s_addr &&
         m->id.idiag_dst[0] == e->own.sin_addr.s_addr;
}

/* In the table of all connections of this namespace, which takes long where there are many. */
static bool look_up(const ends *e, unsigned *user, bool *searched) {
  FILE *table = fopen("/proc/thread-self/net/tcp", "re");
  char line[256];
  bool found = false;
  *searched = table != NULL;
  while (table != NULL && !found && fgets(line, sizeof line, table) != NULL) {
    entry at;
    found = parse(line, &at) && at.address == e->other.sin_addr.s_addr &&
            at.port == ntohs(e->other.sin_port) && at.other_address == e->own.sin_addr.s_addr &&
            at.other_port == ntohs(e->own.sin_port) && at.state == ESTABLISHED && at.inode != 0;
    if (found) *user = at.user;
  }
  if (table != NULL) (void)fclose(table);
  return found;
}

static bool find_user(int fd, unsigned *user, bool *searched) {
  ends e;
  *searched = false;
  if (!ends_of(fd, &e)) return false;
  if (ask(&e, user, searched)) return true;
  return !*searched && look_up(&e, user, searched);
}

tcp_owner tcp_owner_of(int fd) {
  unsigned user = 0;
  bool searched;
  if (find_user(fd, &user, &searched)) return user == geteuid() ? TCP_OWN : TCP_OTHERS;
  return searched ? TCP_CLOSED : TCP_OTHERS;
}

void tcp_tell_users(int fd, char text[TCP_USERS_MAX]) {
  const unsigned own = (unsigned)geteuid();
  unsigned user = 0;
  bool searched;
  text[0] = 0;
  if (find_user(fd, &user, &searched))
    (void)snprintf(text, TCP_USERS_MAX, " (user %u; this rank is user %u)", user, own);
}
