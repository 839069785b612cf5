/* CRC32C (Castagnoli's polynomial, as of RFC 3720, section 12.1): whether bytes have arrived as
 * they were sent. */
#ifndef WEIR_BASE_CRC32C_H
#define WEIR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what has been summed up so far (0: nothing) and these bytes behind it. */
uint32_t weir_crc32c(uint32_t crc, const void *bytes, size_t count);

/* The same without the processor's instruction. */
uint32_t weir_crc32c_plain(uint32_t crc, const void *bytes, size_t count);

#endif
