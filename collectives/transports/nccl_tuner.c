/* NCCL's ring and tree, as plans name them: which of them an all-reduce runs by is told to Weir's
 * tuner plugin, where NCCL has loaded it (include/weir/nccl_tuner.h).
 *
 * A rule applies from a numbered all-reduce on, and must be the same on all ranks, with the same
 * number.  It is: ranks run the same plans in the same order over a communicator of their own, all
 * of them from its first all-reduce on, and before each they compare tags, which hold the plan's
 * digest, the step and the operation (nccl_transfer.c).  So all have had as many all-reduces when
 * they ask, and none asks for another algorithm than the others. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/log.h"
#include "collectives/transports/nccl.h"

static const char advice[] =
    "NCCL_TUNER_PLUGIN=.../libweir-nccl-tuner.so and no NCCL_ALGO in every rank's environment";

static const char *file_of(const nct *self) {
  return self->lib->tuner != NULL ? self->lib->tuner : getenv("NCCL_TUNER_PLUGIN");
}

/* The library that NCCL has loaded; no second copy, of which NCCL would know nothing. */
static void *loaded(const nct *self) {
  const char *file = file_of(self);
  return file != NULL && *file != 0 ? dlopen(file, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL) : NULL;
}

void nct_tuner_before(nct *self) {
  size_t (*communicators)(void) = NULL;
  void *library = loaded(self);
  if (library != NULL) *(void **)&communicators = dlsym(library, "weir_nccl_tuner_communicators");
  self->tuner.before = communicators != NULL ? communicators() : 0;
  if (library != NULL) (void)dlclose(library);
}

static bool find_functions(nct_tuner *tuner) {
  *(void **)&tuner->communicators = dlsym(tuner->library, "weir_nccl_tuner_communicators");
  *(void **)&tuner->asked = dlsym(tuner->library, "weir_nccl_tuner_asked");
  *(void **)&tuner->not_offered = dlsym(tuner->library, "weir_nccl_tuner_not_offered");
  *(void **)&tuner->change = dlsym(tuner->library, "weir_nccl_tuner_switch");
  return tuner->communicators != NULL && tuner->asked != NULL && tuner->not_offered != NULL &&
         tuner->change != NULL;
}

/* What keeps this rank from telling NCCL; NULL: nothing.  Which communicator is the group's is
 * known where it is the only one that has come since before it was formed. */
static const char *find_own(nct *self) {
  nct_tuner *tuner = &self->tuner;
  const char *algorithm = getenv("NCCL_ALGO");
  if (algorithm != NULL && *algorithm != 0) return "NCCL_ALGO is set, which no tuner can change";
  if (file_of(self) == NULL) return "NCCL_TUNER_PLUGIN is not set";
  tuner->library = loaded(self);
  if (tuner->library == NULL) return "NCCL has not loaded the library that NCCL_TUNER_PLUGIN names";
  if (!find_functions(tuner)) return "the library that NCCL_TUNER_PLUGIN names is not Weir's tuner";
  const size_t come = tuner->communicators() - tuner->before;
  if (come == 0) return "NCCL has not asked the tuner about this communicator";
  if (come > 1)
    return "this process formed several communicators at once, and which is the group's is not "
           "known";
  tuner->communicator = tuner->before;
  return NULL;
}

/* What ranks tell each other. */
typedef struct can_tell {
  uint32_t magic, yes;
} can_tell;

static void refuse(nct *self, int rank, const char *why) {
  (void)snprintf(self->tuner.why, sizeof self->tuner.why, "rank %d: %s", rank, why);
  weir_log(WEIR_LOG_INFO, "NCCL chooses its all-reduce itself (%s)", self->tuner.why);
}

/* A group is told only as a whole. */
static weir_status agree(nct *self, can_tell *all, const char *why, double deadline_s) {
  static const char name[] = "weir nccl tuner";
  const weir_tag tag = {.plan = weir_hash(WEIR_HASH_INIT, name, sizeof name)};
  all[self->base.rank] = (can_tell){NCT_MAGIC, why == NULL};
  const weir_status status = weir_transport_tell(self->control, &tag, all, sizeof *all, deadline_s);
  if (status != WEIR_OK) return status;
  int without = -1;
  for (int r = self->base.size; r-- > 0;)
    if (all[r].magic != NCT_MAGIC || all[r].yes != 1) without = r;
  self->tuner.tells = without < 0;
  if (why != NULL)
    refuse(self, self->base.rank, why);
  else if (without >= 0)
    refuse(self, without, "its NCCL cannot be told; it says why");
  return WEIR_OK;
}

weir_status nct_tuner_find(nct *self, double deadline_s) {
  can_tell *all = calloc((size_t)self->base.size, sizeof *all);
  if (all == NULL) return weir_fail(WEIR_E_NOMEM, "no memory for %d ranks", self->base.size);
  const weir_status status = agree(self, all, find_own(self), deadline_s);
  free(all);
  return status;
}

void nct_tuner_close(nct *self) {
  if (self->tuner.library != NULL) (void)dlclose(self->tuner.library);
  self->tuner = (nct_tuner){.before = 0};
}

weir_status nct_tells(const weir_transport *t) {
  const nct *self = (const nct *)t;
  if (self->tuner.tells) return WEIR_OK;
  return weir_fail(WEIR_E_UNSUPPORTED, "NCCL's ring and tree need %s (%s)", advice,
                   self->tuner.why);
}

/* The group is over, as after any failure of NCCL's: the others sum already, or wait to. */
static weir_status refused(weir_nccl_answer answer, uint64_t number) {
  const unsigned long long n = number;
  switch (answer) {
    case WEIR_NCCL_TAKEN: return WEIR_OK;
    case WEIR_NCCL_BUSY:
      return weir_fail(WEIR_E_PEER,
                       "NCCL's tuner has a rule that is not in force yet before all-reduce %llu: "
                       "something else than Weir switches this group's communicator",
                       n);
    case WEIR_NCCL_LATE:
      return weir_fail(
          WEIR_E_PEER,
          "NCCL has asked for all-reduce %llu before its algorithm was told: something "
          "else than Weir sums over this group's communicator",
          n);
    default:
      return weir_fail(WEIR_E_INTERNAL, "NCCL's tuner does not know this group's communicator");
  }
}

weir_status nct_tuner_switch(nct *self, weir_nccl_choice choice) {
  nct_tuner *tuner = &self->tuner;
  if (tuner->choice == choice) return WEIR_OK; /* without a tuner it is always NCCL's own */
  const weir_nccl_rule rule = {.from = tuner->asked(tuner->communicator), .choice = choice};
  const weir_status status = refused(tuner->change(tuner->communicator, &rule), rule.from);
  if (status != WEIR_OK) return status;
  tuner->choice = choice;
  tuner->from = rule.from;
  tuner->due = true;
  return WEIR_OK;
}

weir_status nct_tuner_check(nct *self) {
  nct_tuner *tuner = &self->tuner;
  const bool due = tuner->due;
  tuner->due = false;
  if (!tuner->said && tuner->tells && tuner->not_offered(tuner->communicator) > 0) {
    tuner->said = true;
    weir_log(WEIR_LOG_WARN, "NCCL does not offer its %s here, and chooses for itself",
             tuner->choice == WEIR_NCCL_RING ? "ring" : "tree");
  }
  if (!due || tuner->asked(tuner->communicator) > tuner->from) return WEIR_OK;
  return weir_fail(WEIR_E_PEER, "NCCL has summed without asking its tuner by which algorithm");
}
