/* Internal to the planner: which operation could begin next, for list scheduling
 * (planner/timeline.h, planner/course.h). */
#ifndef WEIR_PLANNER_AGENDA_H
#define WEIR_PLANNER_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The next operation of a chain, or (chain = number of chains) of the backward pass. */
typedef struct weir_wait {
  double ready_s;
  uint32_t chain, op;
} weir_wait;

/* A binary heap, least first: the earliest, of those the lowest chain. */
typedef struct weir_agenda {
  weir_wait *heap; /* room for one entry a chain and one for the backward pass; borrowed */
  size_t count;
} weir_agenda;

static inline bool weir_wait_before(const weir_wait *a, const weir_wait *b) {
  return a->ready_s != b->ready_s ? a->ready_s < b->ready_s : a->chain < b->chain;
}

static inline void weir_agenda_push(weir_agenda *agenda, weir_wait next) {
  weir_wait *heap = agenda->heap;
  size_t at = agenda->count++;
  for (; at && weir_wait_before(&next, &heap[(at - 1) / 2]); at = (at - 1) / 2)
    heap[at] = heap[(at - 1) / 2];
  heap[at] = next;
}

/* There must be one. */
static inline weir_wait weir_agenda_pop(weir_agenda *agenda) {
  weir_wait *heap = agenda->heap;
  const weir_wait least = heap[0], last = heap[--agenda->count];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < agenda->count; at = child) {
    if (child + 1 < agenda->count && weir_wait_before(&heap[child + 1], &heap[child])) child++;
    if (!weir_wait_before(&heap[child], &last)) break;
    heap[at] = heap[child];
  }
  heap[at] = last;
  return least;
}

#endif
