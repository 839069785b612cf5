/* Structs that the caller allocates may be those of an older header: their first field says how
 * large they are. */
#ifndef WEIR_SESSION_ABI_H
#define WEIR_SESSION_ABI_H

#include <stddef.h>
#include <weir/status.h>

typedef struct weir_abi_struct {
  const char *name;
  size_t least; /* of the first version: up to the end of its last field */
  size_t known; /* now */
} weir_abi_struct;

/* A row for a type and the last field of its first version. */
#define WEIR_ABI_STRUCT(type, last) \
  { #type, offsetof(type, last) + sizeof(((type *)NULL)->last), sizeof(type) }

/* Is it a size that this library knows?  WEIR_E_INVALID says what is wrong with others. */
weir_status weir_abi_check(const weir_abi_struct *known, size_t struct_size);

/* Checks, and copies what the caller's struct has over the current one, which holds the defaults of
 * what it has not; its size is then the current one's. */
weir_status weir_abi_take(const weir_abi_struct *known, void *current, const void *callers);
/* Copies as much of the current struct as the caller's, which has been checked, has room for; the
 * caller's size stays. */
void weir_abi_give(void *callers, const void *current);

#endif
