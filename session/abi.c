#include "session/abi.h"

#include <string.h>
#include <weir/weir.h>

#include "base/base.h"

static size_t size_of(const void *any) {
  size_t size;
  memcpy(&size, any, sizeof size);
  return size;
}

weir_status weir_abi_check(const weir_abi_struct *known, size_t struct_size) {
  if (struct_size == 0)
    return weir_fail(WEIR_E_INVALID, "%s.struct_size is 0; it must be sizeof(%s)", known->name,
                     known->name);
  if (struct_size < known->least)
    return weir_fail(WEIR_E_INVALID, "%s.struct_size is %zu; no version is below %zu", known->name,
                     struct_size, known->least);
  if (struct_size > known->known)
    return weir_fail(WEIR_E_INVALID,
                     "%s.struct_size is %zu, and this library (%s) knows %zu: it is older than the "
                     "header that the caller was compiled with",
                     known->name, struct_size, weir_version(), known->known);
  return WEIR_OK;
}

weir_status weir_abi_take(const weir_abi_struct *known, void *current, const void *callers) {
  const size_t size = size_of(callers);
  const weir_status status = weir_abi_check(known, size);
  if (status != WEIR_OK) return status;
  memcpy(current, callers, size);
  memcpy(current, &known->known, sizeof known->known);
  return WEIR_OK;
}

void weir_abi_give(void *callers, const void *current) {
  const size_t size = size_of(callers);
  memcpy((char *)callers + sizeof size, (const char *)current + sizeof size, size - sizeof size);
}
