/* What travels over established connections, encrypted: TLS 1.3 (RFC 8446) by OpenSSL.  Ranks have
 * proved to each other that they know the job's secret before (tcp_hello.h), so that strangers
 * never come as far as this.  The key agreement is ephemeral: who learns secrets later does not
 * read what was said.  Whoever has got in between since does not get through:
 *
 * - without certificates the handshake goes by a pre-shared key, that of the group, and proves it
 *   both ways;
 * - with certificates (collectives/credentials.h) each side shows its own, which has to come from
 *   the authority, and then proves the group's key over what this connection alone has agreed on
 *   (RFC 9266), as somebody else whom the authority knows could be in between.
 *
 * Descriptors stay the transport's own, non-blocking, and are read from tcp_peer.fd each time. */
#ifndef WEIR_TRANSPORTS_TCP_TLS_H
#define WEIR_TRANSPORTS_TCP_TLS_H

#include <sys/uio.h>

#include "collectives/transports/tcp.h"

/* Shake hands on all connections at once.  strict: a rank with which that fails is an error, of
 * which the others are told; else its connection is closed, as that of a rank that has died. */
weir_status tcp_tls_open(tcp *self, double deadline_s, bool strict);
/* What all contexts of OpenSSL are to be like, whatever ranks prove themselves by. */
struct ssl_ctx_st;
bool tcp_tls_configure(struct ssl_ctx_st *any);
/* That there can be none of them, for which OpenSSL has this code. */
weir_status tcp_tls_lacks(unsigned long code);
void tcp_tls_free(struct tcp_tls *tls); /* NULL is allowed; says nothing to the other side */

/* As sendmsg and recvmsg, without waiting.  errno EBADMSG: what came was not encrypted by the other
 * side as it is.  What sending was once given it must be given again until it has been taken, and
 * it must be given the bytes of one message alone. */
ssize_t tcp_tls_send(tcp_peer *p, const struct iovec *piece, size_t pieces);
ssize_t tcp_tls_recv(tcp_peer *p, const struct iovec *piece, size_t pieces);
/* Is the record that has come in part longer than the message it is of, of which `due` bytes at the
 * most are still to come?  Then its length was changed on its way, and its end may never come. */
bool tcp_tls_torn(const tcp_peer *p, size_t due);

#endif
