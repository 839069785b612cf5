/* Copying past the caches: the rest of what the vector versions have, over their own
 * copy_line(). */
#ifndef TARGET
#error "define TARGET first"
#endif

/* In four places at once: one after the other, lines of pages whose addresses have to be looked up
 * first would hold up all behind them. */
TARGET static void copy_past(unsigned char *to, const unsigned char *from, size_t lines) {
  const size_t part = lines / 4;
  for (size_t i = 0; i < part; i++)
    for (size_t at = i; at < i + 4 * part; at += part) copy_line(to + 64 * at, from + 64 * at);
  for (size_t i = 4 * part; i < lines; i++) copy_line(to + 64 * i, from + 64 * i);
}
