/* Status codes and messages.  Part of Weir (Apache-2.0). */
#ifndef WEIR_STATUS_H
#define WEIR_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Grouped by the largest thing lost when the call returns. */
typedef enum weir_status {
  WEIR_OK = 0,

  /* Nothing is lost: the call had no effect. */
  WEIR_E_INVALID = 1,     /* an argument is out of its documented range */
  WEIR_E_STATE = 2,       /* the call is not allowed now */
  WEIR_E_NOMEM = 3,       /* memory could not be had */
  WEIR_E_UNSUPPORTED = 4, /* this build or machine cannot do it */
  WEIR_E_IO = 5,          /* a file could not be read or written */
  WEIR_E_PARSE = 6,       /* text or bytes do not have the documented form */
  WEIR_E_CAPACITY = 7,    /* the output does not fit; nothing was written past its end */
  WEIR_GROW = 8,          /* no error: ranks wait to join the group, and weir_grow is due */

  /* The step is lost; weights, residuals and the group are intact. */
  WEIR_E_NONFINITE = 16, /* a gradient on some rank holds NaN or Inf, or their average would */

  /* The group is lost: no further collective can succeed on this session. */
  WEIR_E_TIMEOUT = 32,  /* a rank did not answer in time; the message names it */
  WEIR_E_PEER = 33,     /* a rank is gone; the message names it */
  WEIR_E_PROTOCOL = 34, /* bytes from the wire break the protocol */
  WEIR_E_MISMATCH = 35, /* two ranks are not on the same plan, step or job */

  WEIR_E_INTERNAL = 48 /* a bug of Weir; please report it */
} weir_status;

/* The constant's name, e.g. "WEIR_E_PEER"; never NULL. */
const char *weir_status_name(weir_status status);

/* What the last failed call of this thread reported: one sentence without a newline; "" before the
 * first failure.  The text is the library's and stays valid until the thread's next failing call.
 */
const char *weir_last_error(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
