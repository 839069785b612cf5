/* A status block's sequence: written by one, read by any without a lock.
 *
 * Words are stored with release and loaded with acquire: who has seen a new word sees the odd
 * number that was stored before it, too. */
#include "session/status.h"

#include <string.h>

size_t weir_status_bytes(uint32_t capacity) {
  return sizeof(weir_status_block) + sizeof(weir_status_facts) +
         (size_t)capacity * sizeof(weir_status_rank);
}

static void put(_Atomic uint64_t *to, const void *from, size_t words) {
  for (size_t i = 0; i < words; i++) {
    uint64_t word;
    memcpy(&word, (const unsigned char *)from + 8 * i, sizeof word);
    atomic_store_explicit(&to[i], word, memory_order_release);
  }
}

static void get(void *to, const _Atomic uint64_t *from, size_t words) {
  for (size_t i = 0; i < words; i++) {
    const uint64_t word = atomic_load_explicit(&from[i], memory_order_acquire);
    memcpy((unsigned char *)to + 8 * i, &word, sizeof word);
  }
}

void weir_status_publish(weir_status_block *block, const weir_status_facts *facts,
                         const weir_status_rank *rows) {
  const uint64_t before = atomic_load_explicit(&block->sequence, memory_order_relaxed);
  atomic_store_explicit(&block->sequence, before + 1, memory_order_relaxed);
  put(block->words, facts, WEIR_STATUS_FACT_WORDS);
  put(block->words + WEIR_STATUS_FACT_WORDS, rows,
      (size_t)facts->world_size * WEIR_STATUS_RANK_WORDS);
  atomic_store_explicit(&block->sequence, before + 2, memory_order_release);
}

/* Texts end, and counts are within bounds, whoever has written them. */
static bool make_sound(weir_status_facts *facts, uint32_t capacity) {
  facts->plan[sizeof facts->plan - 1] = 0;
  facts->transport[sizeof facts->transport - 1] = 0;
  facts->policy[sizeof facts->policy - 1] = 0;
  facts->decision[sizeof facts->decision - 1] = 0;
  if (facts->slow.rank >= facts->world_size) facts->slow.rank = -1;
  return facts->world_size >= 0 && (uint32_t)facts->world_size <= capacity;
}

bool weir_status_read(const weir_status_block *block, weir_status_facts *facts,
                      weir_status_rank *rows, size_t room, size_t *count) {
  for (int turn = 0; turn < 1000; turn++) {
    const uint64_t before = atomic_load_explicit(&block->sequence, memory_order_acquire);
    if (before % 2 != 0) continue;
    get(facts, block->words, WEIR_STATUS_FACT_WORDS);
    if (!make_sound(facts, block->capacity)) return false;
    *count = (size_t)facts->world_size < room ? (size_t)facts->world_size : room;
    get(rows, block->words + WEIR_STATUS_FACT_WORDS, *count * WEIR_STATUS_RANK_WORDS);
    if (atomic_load_explicit(&block->sequence, memory_order_acquire) == before) return true;
  }
  return false;
}

void weir_status_phase(const weir_live *live, char text[9]) {
  const uint64_t packed = atomic_load_explicit(&live->phase, memory_order_relaxed);
  memcpy(text, &packed, 8);
  text[8] = 0;
  for (char *p = text; *p != 0; p++)
    if (*p < ' ' || *p > '~') *p = '?';
}
