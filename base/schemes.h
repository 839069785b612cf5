/* Schemes of exchange, and the algorithms that each can run by: what plans are made of beside
 * their codec.  The names of their products, which plan strings hold, are put together here. */
#ifndef WEIR_BASE_SCHEMES_H
#define WEIR_BASE_SCHEMES_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/plan.h>

typedef struct weir_scheme_row {
  const char *name;    /* the names of its collectives begin so */
  uint32_t algorithms; /* bits by weir_algorithm_id; none: it has no choice */
  uint32_t levels;     /* of these, the ones that go between machines too */
  uint32_t inside;     /* what then goes inside of machines */
  uint32_t broadcasts; /* of lists, beside the binomial one */
  /* Which of them a selector takes, where none is named: rows whose costs are known of every
   * transport, and which lose no more than others. */
  uint32_t choice;
  uint32_t usual; /* the algorithm where nothing is known of the network */
} weir_scheme_row;
extern const weir_scheme_row weir_schemes[WEIR_SCHEME_COUNT]; /* by weir_scheme_id */

/* Has the set of bits this one? */
bool weir_algorithm_in(uint32_t set, uint32_t algorithm);
/* As in the tables of collectives; NULL when unknown. */
const char *weir_algorithm_name(uint32_t algorithm);
/* WEIR_ALGORITHM_ANY when there is none of that name. */
uint32_t weir_algorithm_find(const char *name);

/* Is it summed by the transport, or by the library below it, which adds fp32 and keeps no
 * rounding? */
bool weir_sums_natively(const weir_plan *plan);
/* Of these, by an algorithm that the library is told: NCCL's ring or tree. */
bool weir_sums_as_told(const weir_plan *plan);
/* Does the library sum inside of machines alone, and an algorithm of Weir's between them? */
bool weir_sums_inside_natively(const weir_plan *plan);
/* Are the sums of low rank those of an encoder's messages (kernels/powersgd.c)? */
bool weir_factors_encoded(const weir_plan *plan);
/* NCCL's ring or tree in place of Weir's; others as they are.  And back. */
uint8_t weir_algorithm_told(uint8_t algorithm);
uint8_t weir_algorithm_own(uint8_t algorithm);
/* Do scheme, algorithm, inside and broadcast fit together? */
bool weir_collective_legal(const weir_plan *plan);
/* "dense-ring": sets the plan's scheme and algorithms, of a codec of low rank where it is one.
 * False: there is none of that name. */
bool weir_collective_parse(const char *text, bool low_rank, weir_plan *plan);
/* What goes inside of machines with an algorithm between them, unless something else is named. */
uint32_t weir_inside_usual(uint32_t algorithm);
/* Steps from WEIR_ALGORITHM_ANY through a scheme's algorithms, with the usual one inside of
 * machines where they have levels; false: it was the last one. */
bool weir_algorithm_next(weir_plan *plan);
/* Steps from "dense", a plan of zeros, through the collectives that have names of their own; false:
 * it was the last one.  Low rank goes by dense's. */
bool weir_collective_next(weir_plan *plan);

/* The plan with the usual algorithm where it names none. */
weir_plan weir_plan_usual(const weir_plan *plan);
/* The same scheme and algorithms? */
bool weir_same_collective(const weir_plan *a, const weir_plan *b);

#endif
