/* A process for one thing that must be able to fail, or be killed, without harm to the caller. */
#ifndef WEIR_LAB_STAGE_H
#define WEIR_LAB_STAGE_H

#include <stddef.h>
#include <weir/status.h>

/* Run in a child process that dies with its caller; its status and message become the caller's.
 * SIGTERM and SIGINT are passed on to the child (a terminal sends SIGINT to both); one that comes
 * too late for it makes the whole WEIR_E_STATE.  In the child both are blocked from the first, in
 * every thread it starts, so that neither is lost on a thread or in a gap before someone reads them
 * (weir_supervisor_run does): a body that is long and does not opens them itself.  The caller
 * must have one thread.  A child that dies otherwise is WEIR_E_INTERNAL. */
weir_status weir_stage_run(weir_status (*body)(void *user), void *user);

/* Also used for workers: this process ends (SIGKILL) when its parent does. */
void weir_stage_die_with_parent(void);

/* For a process forked within a body, or a body that reads no signals: block none. */
void weir_stage_open_signals(void);

/* Whoever holds so many workers has some descriptors for each: a namespace, a shaper, and two to
 * hear it by.  A usual limit of 1024 ends at some 250 of them; what may be had above it is taken.
 * Where that is not enough, what then cannot be opened says so. */
void weir_stage_descriptors(size_t workers);

/* Bytes that processes can have, with what the kernel keeps of files and would give; 0: not
 * known. */
double weir_stage_memory(void);

#endif
