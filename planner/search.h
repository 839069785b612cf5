/* Internal to the planner: the searches for a strategy (see strategy.h). */
#ifndef WEIR_PLANNER_SEARCH_H
#define WEIR_PLANNER_SEARCH_H

#include "planner/menu.h"

/* A strategy on the way: the course holds its chains, `of` which items they are. */
typedef struct weir_search {
  const weir_menu *menu;
  weir_course course;
  const weir_menu_item **of;    /* [n] */
  const weir_menu_item **spare; /* [n] */
  bool *removed;                /* [n] */
  double time_s;
} weir_search;

weir_status weir_search_create(weir_search *search, const weir_menu *menu);
void weir_search_free(weir_search *search);

/* Give one tensor an item; time_s is then to be set anew. */
void weir_search_put(weir_search *search, size_t tensor, const weir_menu_item *item);

/* Take these items, one a tensor; sets time_s. */
void weir_search_take(weir_search *search, const weir_menu_item *const *of);
/* Take the first item of each tensor's list. */
void weir_search_first(weir_search *search, const weir_menu_list *lists);

/* Give all tensors of a class this item; sets time_s. */
void weir_search_put_class(weir_search *search, size_t class, const weir_menu_item *item);

/* Algorithm 1 from the strategy in hand, over the lists; bubbles: leave out uncompressed tensors
 * that are communicated before one.  most_work here and below: operations scheduled. */
void weir_search_algorithm1(weir_search *search, const weir_menu_list *lists, bool bubbles,
                            size_t most_work);

/* Algorithm 2 from the strategy in hand.  *priced owns what the CPU counterparts point to; free it
 * when the strategy is no longer used. */
typedef struct weir_search_priced {
  weir_menu_item *item;
  weir_op *ops;
} weir_search_priced;
weir_status weir_search_algorithm2(weir_search *search, size_t most_work,
                                   weir_search_priced *priced);
void weir_search_priced_free(weir_search_priced *priced);

/* Change one tensor, a class or a part of one while that helps and most_work lasts. */
void weir_search_improve(weir_search *search, const weir_menu_list *lists, size_t most_work);

/* The optimum over the lists, starting from the strategy in hand as the best known.  *complete: all
 * were tried or ruled out by bounds within `work` strategies. */
weir_status weir_search_exact(weir_search *search, const weir_menu_list *lists, double work,
                              bool *complete);

#endif
