/* User-Mode Linux: run one command inside a Linux kernel of our own, for machines whose kernel has
 * no netem or whose user may not touch traffic control.
 *
 * Inside, the command is root on one processor (HZ = 100).  The host's root is mounted read-only at
 * the same paths, so programs and data sets are where they are on the host; the only things of the
 * host that can be written are the folder `out`, seen at /run/out, and a folder of this run's own,
 * removed at its end.  htb, netem, veth and bridge are loaded; proc, sysfs and tmpfs (/run,
 * /dev/shm) are mounted; lo is up; HOME and TMPDIR are /run/tmp.  The host's /run is seen at
 * /run/host, and its /dev/shm at /run/shm; what `paths` name there also where it is on the host.
 * No privileges are needed on the host.
 *
 * The kernel is linux.uml, or the file that $WEIR_UML_KERNEL names (scripts/uml-kernel.sh makes
 * one), which has what it takes built in or under /usr/lib/uml/modules. */
#ifndef WEIR_LAB_UML_H
#define WEIR_LAB_UML_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/status.h>

/* What time is inside.  Virtual ones need a kernel with CONFIG_UML_TIME_TRAVEL_SUPPORT. */
typedef enum weir_uml_clock {
  WEIR_UML_CLOCK_REAL = 0,
  WEIR_UML_CLOCK_SKIP_IDLE = 1, /* computing takes the time it takes, waiting none outside */
  WEIR_UML_CLOCK_FREE_CPU = 2   /* nor does computing take time inside: only links, delays and
                                   sleeping do.  What waits in a loop must read a clock in it. */
} weir_uml_clock;
/* "real", "skip-idle", "free-cpu".  false: none of them. */
bool weir_uml_clock_parse(const char *text, weir_uml_clock *clock);
const char *weir_uml_clock_name(weir_uml_clock clock);

/* One line of the command's output, without its newline. */
typedef void (*weir_uml_line_fn)(void *user, bool is_error, const char *line);

typedef struct weir_uml_config {
  const char *const *argv; /* the command and its arguments, ends with NULL; argv[0] is a path
                              or a name looked up in PATH */
  const char *const *environment; /* "NAME=VALUE" to set beside the caller's, ends with NULL; may be
                                     NULL */
  /* Texts of the user's that may hold absolute paths of files to be read, ends with NULL; may be
   * NULL.  What of the host lies there in /run or /dev/shm is seen at the same path; where it
   * cannot be, as something of the machine's own has the place, it is refused (WEIR_E_INVALID). */
  const char *const *paths;
  const char *out;   /* existing writable host folder, seen as /run/out; may be NULL */
  size_t memory_mib; /* 0: 1024 */
  double timeout_s;  /* of everything, boot included, outside; 0: 3600, INFINITY:
                                     none */
  weir_uml_clock clock;
  weir_uml_line_fn line; /* NULL: output goes to the caller's stdout and stderr as it is */
  void *user;
} weir_uml_config;

/* Where a file of the host's is seen inside; the caller frees it. */
char *weir_uml_seen_at(const char *path);

/* Can User-Mode Linux run here, with this clock?  Says why not.  Looks, does not boot. */
bool weir_uml_available(weir_uml_clock clock, char why[512]);

/* Boot, run the command, halt.  *exit_code is the command's (128 + signal when a signal ended it).
 * WEIR_OK when the command ran to its end, whatever its exit code; WEIR_E_UNSUPPORTED when the
 * machine cannot; WEIR_E_TIMEOUT after timeout_s; WEIR_E_STATE when SIGINT or SIGTERM ended the run
 * (*exit_code is then 128 + signal); WEIR_E_IO otherwise, with what the kernel said last.  Nothing
 * of the machine outlives the call.  Call it from one thread at a time: signal handlers for SIGINT
 * and SIGTERM are in force meanwhile. */
weir_status weir_uml_run(const weir_uml_config *config, int *exit_code);

#endif
