/* Messages through memory that two ranks share: both ways at once, and what is refused of them. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/base.h"
#include "collectives/transports/memory.h"

#define RING 4096
enum { MESSAGES = 6, MOST = 3 * RING };
static const size_t lengths[MESSAGES] = {0, 1, RING - 40, MOST, 17, RING};

/* One rank of two: its side of the connection, and its call. */
typedef struct end {
  weir_transport t;
  weir_memory memory[2];
  weir_machine_memory shared;
  weir_memory_progress progress[2];
  int active[2];
  weir_tag tag;
  unsigned char out[MESSAGES][MOST + 1], in[MESSAGES][MOST + 1];
  weir_send send[MESSAGES];
  weir_recv recv[MESSAGES];
  weir_memory_call call;
} end;

static _Alignas(64) unsigned char ring[2][sizeof(weir_memory_ring) + RING];
static end ends[2];

static unsigned char byte_of(int from, size_t m, size_t i) {
  return (unsigned char)((size_t)from * 101 + m * 17 + i * 7 + i / 256);
}

static void open_end(int rank, size_t messages) {
  end *e = &ends[rank];
  *e = (end){.t = {.rank = rank, .size = 2}, .tag = {1, 2, 3, 0}};
  e->memory[1 - rank] = (weir_memory){.out = (weir_memory_ring *)(void *)ring[rank],
                                      .in = (weir_memory_ring *)(void *)ring[1 - rank],
                                      .ring_bytes = RING,
                                      .bell = -1};
  e->shared.memory = e->memory;
  for (size_t m = 0; m < messages; m++) {
    for (size_t i = 0; i < lengths[m]; i++) e->out[m][i] = byte_of(rank, m, i);
    e->send[m] = (weir_send){1 - rank, e->out[m], lengths[m], (uint32_t)m};
    e->recv[m] = (weir_recv){1 - rank, e->in[m], MOST, (uint32_t)m, 0};
  }
  e->call = (weir_memory_call){.t = &e->t,
                               .shared = &e->shared,
                               .tag = &e->tag,
                               .send = e->send,
                               .sends = messages,
                               .recv = e->recv,
                               .recvs = messages,
                               .progress = e->progress,
                               .active = e->active};
}

static void open_ends(size_t messages) {
  memset(ring, 0, sizeof ring);
  for (int rank = 0; rank < 2; rank++) open_end(rank, messages);
}

/* By turns until both are through, or nothing moves any more. */
static void take_turns(void) {
  bool moved = true;
  for (int rank = 0; rank < 2; rank++) weir_memory_begin(&ends[rank].call);
  while (moved) {
    moved = false;
    for (int rank = 0; rank < 2; rank++)
      cr_assert_eq(weir_memory_turn(&ends[rank].call, &moved), WEIR_OK, "%s", weir_last_error());
  }
}

/* Rank 0 sends, as it is; what rank 1 makes of it. */
static weir_status send_one(void) {
  bool moved = false;
  ends[0].call.recvs = ends[1].call.sends = 0;
  for (int rank = 0; rank < 2; rank++) weir_memory_begin(&ends[rank].call);
  cr_assert_eq(weir_memory_turn(&ends[0].call, &moved), WEIR_OK, "%s", weir_last_error());
  return weir_memory_turn(&ends[1].call, &moved);
}

Test(memory_messages, come_as_they_went) {
  open_ends(MESSAGES);
  for (int times = 0; times < 3; times++) {
    take_turns();
    for (int rank = 0; rank < 2; rank++) {
      end *e = &ends[rank];
      cr_assert_eq(e->call.open, 0);
      cr_assert_eq(weir_memory_waits_for(&e->call), -1);
      for (size_t m = 0; m < MESSAGES; m++) {
        cr_assert_eq(e->recv[m].bytes, lengths[m]);
        for (size_t i = 0; i < lengths[m]; i++)
          cr_assert_eq(e->in[m][i], byte_of(1 - rank, m, i), "message %zu, byte %zu", m, i);
      }
      memset(e->in, 0, sizeof e->in);
    }
  }
}

/* Who sends more than there is room for waits for the other, which waits for nobody. */
Test(memory_messages, wait_for_room) {
  open_ends(4);
  ends[1].call.sends = ends[1].call.recvs = 0;
  take_turns();
  cr_assert_eq(ends[1].call.open, 0);
  cr_assert_eq(weir_memory_waits_for(&ends[1].call), -1);
  cr_assert_eq(weir_memory_waits_for(&ends[0].call), 1);
  cr_assert_eq(ends[0].call.open, 6); /* two have gone: two more, and four receives */
}

/* No message is for the rank that shares no memory. */
Test(memory_messages, are_of_memory_alone) {
  open_ends(2);
  ends[0].memory[1].in = NULL;
  cr_assert(!weir_memory_reaches(&ends[0].shared, 1));
  cr_assert(weir_memory_reaches(&ends[1].shared, 0));
  weir_memory_begin(&ends[0].call);
  cr_assert_eq(ends[0].call.open, 0);
  ends[0].shared.memory = NULL;
  cr_assert(!weir_memory_reaches(&ends[0].shared, 1));
}

/* Rank 1 uses no byte, and knows who is to blame. */
static void expect_refused(weir_status due, const char *why) {
  cr_assert_eq(send_one(), due, "%s", weir_last_error());
  cr_assert_not_null(strstr(weir_last_error(), why), "%s", weir_last_error());
  cr_assert_eq(ends[1].call.culprit, 0);
  for (size_t i = 0; i < sizeof ends[1].in[0]; i++) cr_assert_eq(ends[1].in[0][i], 0);
}

Test(memory_messages, another_step_is_refused) {
  open_ends(2);
  ends[0].tag.step++;
  ends[1].call.culprit = -1;
  expect_refused(WEIR_E_MISMATCH, "rank 0 is at step 3, this rank at step 2");
}

Test(memory_messages, one_too_long_is_refused) {
  open_ends(2);
  ends[0].send[0].bytes = 100;
  ends[1].recv[0].capacity = 99;
  ends[1].call.culprit = -1;
  expect_refused(WEIR_E_PROTOCOL, "rank 0 sent 100 bytes where at most 99 were due");
}

Test(memory_messages, what_is_no_frame_is_refused) {
  open_ends(2);
  ends[0].t.rank = 5; /* the frame says so */
  ends[1].call.culprit = -1;
  expect_refused(WEIR_E_PROTOCOL, "rank 0 sent something that is not a frame of Weir's");
}

/* Positions that nobody can have come to, of the ring that is read and of the one that is
 * written. */
Test(memory_messages, a_spoilt_ring_is_found) {
  for (int writes = 0; writes < 2; writes++) {
    bool moved = false;
    open_ends(2);
    end *e = &ends[1];
    e->call.culprit = -1;
    if (writes)
      atomic_store(&e->memory[0].out->tail, 9);
    else
      atomic_store(&e->memory[0].in->head, RING + 1);
    weir_memory_begin(&e->call);
    cr_assert_eq(weir_memory_turn(&e->call, &moved), WEIR_E_PROTOCOL);
    cr_assert_not_null(strstr(weir_last_error(), "rank 0 was damaged"), "%s", weir_last_error());
    cr_assert_eq(e->call.culprit, 0);
  }
}
