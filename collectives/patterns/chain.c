/* Into how many chunks a message is cut that goes down a chain. */
#include "collectives/patterns/patterns.h"

int weir_chain_chunks(size_t bytes) {
  const size_t chunks = bytes / ((size_t)64 * 1024);
  return chunks < 1 ? 1 : chunks > 32 ? 32 : (int)chunks;
}
