/* How connections of TCP are moved into the memory that the ranks of a machine share. */
#include "collectives/transports/memory.h"
#include "collectives/transports/tcp.h"
#include "collectives/transports/tcp_tls.h"

/* What was said over the sockets has been read, and no cipher is due there any more. */
static void move(tcp *self, int way) {
  tcp_peer *p = &self->peer[way];
  if (!self->shared.memory[way].in) return;
  p->memory = &self->shared.memory[way];
  p->memory->bell = p->fd;
  tcp_tls_free(p->tls);
  p->tls = NULL;
}

void tcp_take_memory(weir_transport *t, weir_machine_memory *shared) {
  tcp *self = (tcp *)t;
  self->shared = *shared;
  *shared = (weir_machine_memory){0};
  for (int way = 0; self->shared.memory && way < self->streams * t->size; way++) move(self, way);
  self->ops = *t->ops;
  self->ops.name = "mixed";
  t->ops = &self->ops;
}
