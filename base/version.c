/* The version of the library that runs, which the headers' may differ from. */
#include <weir/weir.h>

const char *weir_version(void) { return WEIR_VERSION; }
