/* Reading a Rice list through a table of its codes; wire_mask.c makes the tables.  Each look-up
 * waits for the one before it and leaves most of the processor idle: what was read before is spread
 * meanwhile.  The including file defines TARGET and spread_word(). */
#ifndef TARGET
#error "define TARGET first"
#endif

/* Words spread after each word of the list: about as many as it gives rise to where lists are
 * dense. */
#define SPREAD_EACH 2

TARGET static void rice_read(weir_rice *rice, const uint8_t *end, weir_spread_job *job) {
  weir_rice r = *rice;
  weir_spread_job j = *job;
  while (r.to < end && r.last - r.from >= 8) {
    uint64_t next;
    memcpy(&next, r.from, sizeof next);
    r.window |= next << r.have;
    r.from += (63 - r.have) / 8;
    r.have |= 56;
    for (unsigned step = 0; step < 56 / WEIR_RICE_WINDOW; step++) {
      uint64_t entry = r.table[r.window & ((1U << WEIR_RICE_WINDOW) - 1)];
      r.window >>= WEIR_RICE_USED(entry);
      r.have -= WEIR_RICE_USED(entry);
      r.pending |= WEIR_RICE_BITS(entry) << r.fill;
      memcpy(r.to, &r.pending, sizeof r.pending);
      r.fill += WEIR_RICE_SPAN(entry);
      r.to += r.fill / 8;
      r.pending >>= r.fill & ~UINT64_C(7);
      r.fill %= 8;
    }
    for (unsigned each = 0; each < SPREAD_EACH && j.words > 0; each++) {
      j.value += spread_word(*j.mask, j.value, j.to, j.stream);
      j.mask++;
      j.to += 64;
      j.words--;
    }
  }
  *rice = r;
  *job = j;
}

#undef SPREAD_EACH
