/* Paths: which communications a bucket's exchange consists of, and where in between it is
 * compressed and decompressed.  They are those of the decision tree of "ByteComp", section 4.2
 * (planner/options.h), without the places of compression; plans hold them in two bytes, plan
 * strings as "path=" and their tasks:
 *
 *   c compress              d decompress, and add up
 *   ar all-reduce           ag all-gather (compressed too)
 *   rs reduce-scatter       r reduce to a root           b broadcast (compressed too)
 *   a2a all-to-all*         g gather to a root*          *: of compressed data
 *
 * How many communications there are says where each goes on: one or two among all ranks; three or
 * four inside of machines first and last, between machines meanwhile.  Of two at a place the second
 * pairs with the first: rs and a2a with ag, r and g with b.  "path=rs.c.a2a.d.c.ag.d.ag": sums
 * inside of machines, compressed twice between them. */
#ifndef WEIR_BASE_PATH_H
#define WEIR_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/plan.h>

/* The action tasks, its Table 3. */
typedef enum weir_task {
  WEIR_TASK_COMP,
  WEIR_TASK_DECOMP,
  WEIR_TASK_COMM,       /* indivisible, uncompressed: all-reduce */
  WEIR_TASK_COMM1,      /* first step, uncompressed: reduce-scatter or reduce */
  WEIR_TASK_COMM2,      /* second step, uncompressed: all-gather or broadcast */
  WEIR_TASK_COMM_COMP,  /* indivisible, compressed: all-gather */
  WEIR_TASK_COMM1_COMP, /* first step, compressed: all-to-all or gather */
  WEIR_TASK_COMM2_COMP, /* second step, compressed: all-gather or broadcast */
  WEIR_TASKS
} weir_task;

typedef enum weir_site {
  WEIR_SITE_GPU,
  WEIR_SITE_CPU,
  WEIR_SITE_FLAT, /* all workers at once, over the links between machines */
  WEIR_SITE_INTRA,
  WEIR_SITE_INTER,
  WEIR_SITES
} weir_site;

/* Each machine's sum is compressed once and gathered, which is fastest between two machines: the
 * path that policies choose by themselves. */
#define WEIR_PATH_MACHINE_SUMS "rs.c.ag.d.ag"

enum { WEIR_PATH_TASKS = 12, WEIR_PATH_HOPS = 4 };

typedef struct weir_path {
  size_t count;
  struct {
    uint8_t task;    /* weir_task */
    uint8_t place;   /* weir_site: GPU or CPU for (de)compression, else the links */
    uint8_t routine; /* of the two in a task's row: 0 or 1, which has a root */
  } step[WEIR_PATH_TASKS];
} weir_path;

/* The communications of a path of so many, in order. */
typedef enum weir_role { WEIR_ROLE_WHOLE, WEIR_ROLE_FIRST, WEIR_ROLE_SECOND } weir_role;
typedef struct weir_path_form {
  size_t hops;
  struct {
    weir_site place;
    weir_role role;
  } hop[WEIR_PATH_HOPS];
} weir_path_form;
extern const weir_path_form weir_path_forms[WEIR_PATH_HOPS]; /* by their number less 1 */
weir_task weir_path_task(weir_role role, bool compressed);

/* The path of a plan whose scheme is WEIR_SCHEME_PATH, its places of compression all WEIR_SITE_CPU:
 * `algorithm` has two bits a communication, the first one's lowest, 1: of floats, 2: compressed
 * before it, 3: compressed as it came; `inside` bit 0 for a root inside of machines, bit 1 for one
 * between machines or among all.  False: there is no such path. */
bool weir_path_of(const weir_plan *plan, weir_path *path);
/* The other way, of any path of the tree, whatever its places: scheme, algorithm, inside. */
void weir_path_pack(const weir_path *path, weir_plan *plan);
bool weir_path_compresses(const weir_path *path);

/* "c.ag.d"; returns the length, which is below WEIR_COLLECTIVE_TEXT_MAX - 5 with its zero. */
size_t weir_path_format(const weir_path *path, char *text, size_t capacity);
/* Sets scheme, algorithm, inside and broadcast.  WEIR_E_PARSE names the task that is wrong, and
 * leaves *plan unchanged. */
weir_status weir_path_parse(const char *text, weir_plan *plan);

#endif
