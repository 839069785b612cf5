/* What travels over established connections, encrypted: TLS 1.3 (RFC 8446) by OpenSSL, with a
 * pre-shared key and no certificates.  Ranks have proved to each other that they know the job's
 * secret before (tcp_hello.h), so that strangers never come as far as this; and whoever has got in
 * between since cannot finish the handshake, which proves the key of the group both ways.  The key
 * agreement is ephemeral (psk_dhe_ke): who learns the secret later does not read what was said.
 *
 * Descriptors stay the transport's own, non-blocking, and are read from tcp_peer.fd each time. */
#ifndef WEIR_TRANSPORTS_TCP_TLS_H
#define WEIR_TRANSPORTS_TCP_TLS_H

#include <sys/uio.h>

#include "collectives/transports/tcp.h"

/* Shake hands on all connections at once.  strict: a rank with which that fails is an error, of which
 * the others are told; else its connection is closed, as that of a rank that has died. */
weir_status tcp_tls_open(tcp *self, double deadline_s, bool strict);
void tcp_tls_free(struct tcp_tls *tls); /* NULL is allowed; says nothing to the other side */

/* As sendmsg and recvmsg, without waiting.  errno EBADMSG: what came was not encrypted by the other
 * side as it is.  What sending was once given it must be given again until it has been taken, and it
 * must be given the bytes of one message alone. */
ssize_t tcp_tls_send(tcp_peer *p, const struct iovec *piece, size_t pieces);
ssize_t tcp_tls_recv(tcp_peer *p, const struct iovec *piece, size_t pieces);
/* Is the record that has come in part longer than the message it is of, of which `due` bytes at the
 * most are still to come?  Then its length was changed on its way, and its end may never come. */
bool tcp_tls_torn(const tcp_peer *p, size_t due);

#endif
