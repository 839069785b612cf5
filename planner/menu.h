/* Internal to the planner: which options are worth trying for a tensor, with their operations. */
#ifndef WEIR_PLANNER_MENU_H
#define WEIR_PLANNER_MENU_H

#include "planner/course.h"
#include "planner/strategy.h"

enum { WEIR_MENU_SIZES = 4 }; /* at which options are compared first */

/* An option with a codec. */
typedef struct weir_menu_entry {
  weir_option option;
  uint8_t codec;
  bool compressed, on_gpu, on_cpu;
  double cost[WEIR_MENU_SIZES][WEIR_RESOURCES], sum; /* seconds on each resource */
} weir_menu_entry;

/* An entry for tensors of one class. */
typedef struct weir_menu_item {
  const weir_menu_entry *entry;
  weir_course_chain chain;
  double cost[WEIR_RESOURCES], alone_s; /* seconds on each resource, and all after one another */
} weir_menu_item;

typedef struct weir_menu_list {
  weir_menu_item *item; /* ascending in alone_s; their operations are the menu's */
  size_t count;
} weir_menu_list;

/* Tensors of the same bytes and the same codecs allowed, in backward order. */
typedef struct weir_menu_class {
  double bytes;
  uint8_t codecs;
  size_t *tensor; /* into weir_menu.order */
  size_t count;
} weir_menu_class;

typedef struct weir_menu {
  const weir_profile *profile;
  const weir_cluster *cluster;
  weir_menu_entry *entries;
  weir_menu_item **priced; /* [count] of each entry one item a class, once a list asks; or NULL */
  size_t count, options;
  bool thorough;
  weir_menu_class *classes; /* descending in bytes */
  size_t class_count;
  size_t *order;    /* [n] tensors by class */
  size_t *class_of; /* [n] */
} weir_menu;

/* thorough: with options that compress both on GPU and on CPU (they are nine in ten), and with
 * longer lists. */
weir_status weir_menu_create(weir_menu *menu, const weir_profile *profile,
                             const weir_cluster *cluster, const weir_strategy_limits *limits,
                             bool thorough);
void weir_menu_free(weir_menu *menu);

/* The lists, one a class, of what a method may choose; compare: drop what another is better than,
 * or hardly worse, on every resource; else only what is the same in every operation.  A class whose
 * space is empty gets the uncompressed options (limits may forbid to compress a tensor).
 * WEIR_E_INVALID when those are ruled out too, naming a tensor.  weir_menu_lists_free frees them;
 * NULL is allowed. */
weir_status weir_menu_lists(const weir_menu *menu, weir_strategy_method method, bool compare,
                            weir_menu_list **lists);
/* The entry that differs only in compressing on the CPU; NULL when there is none. */
const weir_menu_entry *weir_menu_on_cpu(const weir_menu *menu, const weir_menu_entry *entry);
void weir_menu_lists_free(const weir_menu *menu, weir_menu_list *lists);

#endif
