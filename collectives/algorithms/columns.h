/* Headers where ranks share machines, each of which has as many: those of a column, the ranks at
 * one place of every machine, travel between machines with what else goes there, then columns
 * inside. */
#ifndef WEIR_COLLECTIVES_COLUMNS_H
#define WEIR_COLLECTIVES_COLUMNS_H

#include "collectives/comm.h"

/* Of a levelled group after weir_comm_levels.  The own column's headers, as what an algorithm of
 * hosts.outer carries, in memory of weir_columns_bytes; weir_columns_end takes in what it has
 * brought.  Without headers all of it is nothing. */
size_t weir_columns_bytes(const weir_comm *comm, const weir_headers *headers);
weir_headers weir_columns_begin(const weir_comm *comm, const weir_headers *headers, void *memory);
void weir_columns_end(const weir_comm *comm, const weir_headers *headers,
                      const weir_headers *column);

/* A block of `length` bytes of every rank of the machine to all of them, by a row of
 * weir_allgathers[]; the caller's lies in its place.  A block of another length is refused: what
 * says of what.  Uses WEIR_SCRATCH_B. */
weir_status weir_gather_inside(weir_comm *comm, uint32_t gather, void *all, size_t stride,
                               size_t length, const char *what);
/* WEIR_E_PROTOCOL, and the group ends: the rank at a place of the machine sent `bytes`, not
 * `due`. */
weir_status weir_refuse_length(weir_comm *inner, int place, const char *what, size_t bytes,
                               size_t due);

/* Then all columns of the machine's ranks, by such a row; uses both scratches. */
weir_status weir_columns_share(weir_comm *comm, const weir_headers *headers, uint32_t gather);

/* The rank at a place of a host; -1: it has not so many. */
int weir_columns_rank(const weir_comm *comm, int host, int place);

#endif
