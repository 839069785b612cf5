/* Which kernel User-Mode Linux boots, and whether it can do what is asked of it.  Used by lab/uml.c
 * only; what others ask is in uml.h. */
#ifndef WEIR_LAB_UML_KERNEL_H
#define WEIR_LAB_UML_KERNEL_H

#include "lab/uml.h"
#include "lab/uml_script.h"

/* What the kernel's command line says of a clock; NULL: nothing. */
const char *weir_uml_clock_parameter(weir_uml_clock clock);
/* WEIR_E_UNSUPPORTED, with what to do, when there is none or it lacks the clock.  *modules: it
 * is Debian's, whose modules lie in /usr/lib/uml/modules. */
weir_status weir_uml_find_kernel(weir_uml_clock clock, char path[WEIR_UML_PATH], bool *modules);

#endif
