/* Giving memory back to the system without freeing it. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

void weir_give_back(void *memory, size_t bytes) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
  const uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
  /* Refused, it stays where it is. */
  if (memory != NULL && first < end)
    (void)madvise((unsigned char *)memory + (first - at), end - first, MADV_DONTNEED);
}
