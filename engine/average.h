/* Do all ranks hold the same average?  Each digests what it publishes, in the pass that writes it,
 * and tells the digest in the header of the next exchange; there every rank compares them all.  So
 * whatever makes one rank's average another than the others', faulty memory, a bug, an attack, is
 * found an exchange later, before a second update is made of it. */
#ifndef WEIR_ENGINE_AVERAGE_H
#define WEIR_ENGINE_AVERAGE_H

#include <string.h>

#include "engine/state.h"

/* An element's part of the digest, which is their sum modulo 2^32, in whatever order.  An odd
 * factor can be undone, so that no change of one element alone goes unseen; others do in one of
 * 2^32. */
static inline uint32_t weir_average_term(float x, size_t place) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits * (2 * (uint32_t)place + 1);
}

static inline uint32_t weir_average_half_term(uint16_t x, size_t place) {
  return x * (2 * (uint32_t)place + 1);
}

/* The step is over, and has brought an average unless it is lost: remember its digest. */
void weir_average_keep(weir_engine *engine, bool lost);
/* Put it into this rank's header. */
void weir_average_tell(const weir_engine *engine, weir_header *header);
/* WEIR_E_MISMATCH, on all ranks alike, when their headers tell different ones. */
weir_status weir_average_check(weir_engine *engine);

#endif
