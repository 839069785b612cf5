/* Without a secret ranks meet on the loopback, where any local user may call: whose is the other
 * end? */
#include <arpa/inet.h>
#include <inttypes.h>
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

/* The kernel's table of this namespace's sockets holds both ends of a connection on the loopback,
 * each with the user who made it. */
static bool find_user(int fd, unsigned *user) {
  struct sockaddr_in own, other;
  socklen_t own_length = sizeof own, other_length = sizeof other;
  if (getsockname(fd, (struct sockaddr *)&own, &own_length) != 0 ||
      getpeername(fd, (struct sockaddr *)&other, &other_length) != 0)
    return false;
  FILE *table = fopen("/proc/thread-self/net/tcp", "re");
  char line[256];
  bool found = false;
  while (table != NULL && !found && fgets(line, sizeof line, table) != NULL) {
    entry e;
    found = parse(line, &e) && e.address == other.sin_addr.s_addr &&
            e.port == ntohs(other.sin_port) && e.other_address == own.sin_addr.s_addr &&
            e.other_port == ntohs(own.sin_port) && e.state == ESTABLISHED && e.inode != 0;
    if (found) *user = e.user;
  }
  if (table != NULL) (void)fclose(table);
  return found;
}

bool tcp_same_user(int fd) {
  unsigned user = 0;
  return find_user(fd, &user) && user == geteuid();
}

void tcp_tell_users(int fd, char text[TCP_USERS_MAX]) {
  const unsigned own = (unsigned)geteuid();
  unsigned user = 0;
  text[0] = 0;
  if (find_user(fd, &user))
    (void)snprintf(text, TCP_USERS_MAX, " (user %u; this rank is user %u)", user, own);
}
