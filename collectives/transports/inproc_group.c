/* Threads that meet under a name, wait for one another and end together. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "collectives/transports/inproc.h"

/* Groups that still wait for members; a complete group leaves the list and its name is free. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static inproc_group *registry;

static void group_free(inproc_group *group) {
  for (int i = 0; i < group->size; i++) (void)pthread_cond_destroy(&group->member[i].changed);
  (void)pthread_mutex_destroy(&group->lock);
  free(group->head);
  free(group->member);
  free(group->name);
  free(group);
}

static weir_status group_create(inproc_group **out, const char *name, int size) {
  inproc_group *group = calloc(1, sizeof *group);
  if (group) {
    group->size = size;
    group->name = strdup(name);
    group->member = calloc((size_t)size, sizeof *group->member);
    group->head = calloc((size_t)size * (size_t)size, sizeof(inproc_letter *));
  }
  if (!group || !group->name || !group->member || !group->head) {
    if (group) {
      free(group->head);
      free(group->member);
      free(group->name);
    }
    free(group);
    return weir_fail(WEIR_E_NOMEM, "no memory for a group of %d ranks", size);
  }
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_mutex_init(&group->lock, NULL);
  for (int i = 0; i < size; i++) {
    (void)pthread_cond_init(&group->member[i].changed, &attributes);
    group->member[i].waiting_on = -1;
  }
  (void)pthread_condattr_destroy(&attributes);
  *out = group;
  return WEIR_OK;
}

static inproc_group **find(const char *name) {
  inproc_group **at = &registry;
  while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
  return at;
}

static void unlist(inproc_group *group) {
  inproc_group **at = &registry;
  while (*at && *at != group) at = &(*at)->next;
  if (*at) *at = group->next;
}

bool inproc_wait(inproc_group *group, int rank, double deadline_s) {
  double whole = 0.0;
  const double part = modf(deadline_s, &whole);
  const struct timespec until = {.tv_sec = (time_t)whole, .tv_nsec = (long)(part * 1e9)};
  return pthread_cond_timedwait(&group->member[rank].changed, &group->lock, &until) != ETIMEDOUT;
}

void inproc_wake_all(inproc_group *group) {
  for (int i = 0; i < group->size; i++) (void)pthread_cond_signal(&group->member[i].changed);
}

void inproc_end(inproc_group *group, weir_status reason, int culprit, int reporter) {
  if (group->end.reason == WEIR_OK) group->end = (weir_end){reason, culprit, reporter};
  inproc_wake_all(group);
}

/* With the registry locked.  The group's own lock is not needed yet: joiners change `joined` only
 * under the registry's. */
static weir_status enter(inproc_group **out, const char *name, int rank, int size) {
  inproc_group *group = *find(name);
  if (!group) {
    const weir_status status = group_create(&group, name, size);
    if (status != WEIR_OK) return status;
    group->next = registry;
    registry = group;
  }
  if (group->size != size)
    return weir_fail(WEIR_E_MISMATCH, "group \"%s\" has %d ranks elsewhere and %d here", name,
                     group->size, size);
  if (group->member[rank].joined)
    return weir_fail(WEIR_E_INVALID, "rank %d of group \"%s\" has joined already", rank, name);
  group->member[rank].joined = true;
  group->member[rank].gone = false;
  group->users++;
  if (++group->joined == size) unlist(group);
  *out = group;
  return WEIR_OK;
}

weir_status inproc_join(inproc_group **out, const char *name, int rank, int size,
                        double deadline_s) {
  *out = NULL;
  inproc_group *group = NULL;
  (void)pthread_mutex_lock(&registry_lock);
  const weir_status status = enter(&group, name, rank, size);
  const bool last = status == WEIR_OK && group->joined == size;
  (void)pthread_mutex_unlock(&registry_lock);
  if (status != WEIR_OK) return status;

  (void)pthread_mutex_lock(&group->lock);
  if (last) {
    group->complete = true;
    inproc_wake_all(group);
  }
  while (!group->complete && inproc_wait(group, rank, deadline_s)) continue;
  const bool complete = group->complete;
  (void)pthread_mutex_unlock(&group->lock);
  if (complete) {
    *out = group;
    return WEIR_OK;
  }
  (void)pthread_mutex_lock(&registry_lock);
  group->member[rank].joined = false;
  group->joined--;
  int missing = -1; /* rather one that has never come than one that has given up */
  for (int r = size; r-- > 0;)
    if (r != rank && !group->member[r].joined &&
        (missing < 0 || !group->member[r].gone || group->member[missing].gone))
      missing = r;
  (void)pthread_mutex_unlock(&registry_lock);
  inproc_leave(group, rank);
  return weir_fail(WEIR_E_TIMEOUT, "rank %d did not join group \"%s\" in time", missing, name);
}

void inproc_leave(inproc_group *group, int rank) {
  (void)pthread_mutex_lock(&registry_lock);
  (void)pthread_mutex_lock(&group->lock);
  group->member[rank].gone = true;
  inproc_wake_all(group);
  (void)pthread_mutex_unlock(&group->lock);
  const bool last = --group->users == 0;
  if (last) unlist(group);
  (void)pthread_mutex_unlock(&registry_lock);
  if (last) group_free(group);
}
