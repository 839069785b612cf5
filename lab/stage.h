/* A process for one thing that must be able to fail, or be killed, without harm to the caller. */
#ifndef WEIR_LAB_STAGE_H
#define WEIR_LAB_STAGE_H

#include <weir/status.h>

/* Run in a child process that dies with its caller; its status and message become the caller's.
 * SIGTERM is passed on to the child, SIGINT is left to it (a terminal sends it to both).  The caller
 * must have one thread.  A child that dies otherwise is WEIR_E_INTERNAL. */
weir_status weir_stage_run(weir_status (*body)(void *user), void *user);

/* Also used for workers: this process ends (SIGKILL) when its parent does. */
void weir_stage_die_with_parent(void);

#endif
