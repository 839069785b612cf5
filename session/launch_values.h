/* Values of environment variables, checked.  All errors name the variable. */
#ifndef WEIR_SESSION_LAUNCH_VALUES_H
#define WEIR_SESSION_LAUNCH_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/status.h>

/* A variable's value; NULL when it is not set or empty. */
const char *weir_env(const char *name);

/* A whole number, digits only, in least..most.  WEIR_E_PARSE otherwise. */
weir_status weir_env_number(const char *name, long least, long most, int *number);
/* The same of a variable that may be missing: *number is then -1. */
weir_status weir_env_number_if_set(const char *name, long least, long most, int *number);

/* A host name or IPv4 address (letters, digits, dots, hyphens, underscores), at most 253 long. */
bool weir_is_host(const char *text, size_t length);
/* WEIR_E_PARSE: the variable is not what was expected. */
weir_status weir_env_fail(const char *name, const char *expected);

/* The first host of a Slurm node list such as "gpu[07-09,12],login1", into host[room]. */
weir_status weir_env_first_node(const char *name, char *host, size_t room);

#endif
