/* What a run goes on from: the newest generation that all ranks have whole, and what is none. */
#include <criterion/criterion.h>
#include <glib.h>
#include <stdio.h>
#include <unistd.h>

#include "lab/savepoint.h"
#include "lab/trainer_state.h"
#include "trainer_data.h"

enum { WORKERS = 2, RUN = 77 };

typedef struct rank {
  weir_trainer *trainer;
  weir_session *session;
} rank;

/* In a group of its own: what it saves is of no matter here. */
static rank begin(const weir_dataset *data, bool starts) {
  rank r = {.trainer = NULL};
  weir_trainer_config config = plain();
  config.model = "cnn";
  config.sizes.channels = 2;
  r.trainer = make(&config, data);
  weir_options options;
  weir_options_init(&options);
  options.transport = "inproc";
  options.rendezvous = "savepoint";
  options.policy = "fixed:none:1:dense-ring";
  cr_assert_eq(weir_session_create(&r.session, &options), WEIR_OK, "%s", weir_last_error());
  cr_assert_eq(weir_register_tensor(r.session, "w", 3, NULL), WEIR_OK);
  cr_assert_eq(weir_trainer_register(r.trainer, r.session), WEIR_OK);
  if (starts) cr_assert_eq(weir_session_start(r.session), WEIR_OK, "%s", weir_last_error());
  return r;
}

static void end(rank *r) {
  weir_session_free(r->session);
  weir_trainer_free(r->trainer);
}

static weir_savepoint at(uint32_t number, uint32_t slot, uint64_t committed) {
  return (weir_savepoint){.run = RUN,
                          .rank = number,
                          .workers = WORKERS,
                          .committed = committed,
                          .executed = committed + 5,
                          .slot = slot};
}

/* Of all ranks. */
static void save(const char *out, rank *r, uint32_t slot, uint64_t committed) {
  for (uint32_t k = 0; k < WORKERS; k++) {
    const weir_savepoint point = at(k, slot, committed);
    cr_assert_eq(weir_savepoint_write(out, &point, r->trainer, r->session), WEIR_OK, "%s",
                 weir_last_error());
  }
}

static char *file_of(const char *out, int number, int slot) {
  return g_strdup_printf("%s/.weir-rank-%d.%d", out, number, slot);
}

/* A byte becomes another one. */
static void harm(const char *out, int number, int slot, long place) {
  g_autofree char *path = file_of(out, number, slot);
  FILE *file = fopen(path, "r+b");
  cr_assert(file && fseek(file, place, SEEK_SET) == 0);
  const int was = fgetc(file);
  cr_assert(fseek(file, place, SEEK_SET) == 0 && fputc(was ^ 1, file) != EOF && !fclose(file));
}

static uint64_t found(const char *out) {
  weir_savepoint point = {0};
  if (!weir_savepoint_find(out, RUN, WORKERS, &point)) return 0;
  cr_assert_eq(point.rank, 0);
  cr_assert_eq(point.executed, point.committed + 5);
  return point.committed;
}

static void sweep(const char *out) {
  for (int k = 0; k < WORKERS; k++)
    for (int slot = 0; slot < 2; slot++) {
      g_autofree char *path = file_of(out, k, slot);
      (void)unlink(path);
    }
  cr_assert_eq(rmdir(out), 0);
}

Test(savepoint, the_newest_that_all_have_whole) {
  weir_dataset data = synthetic();
  rank r = begin(&data, true);
  char out[] = "/tmp/weir-savepoint-XXXXXX";
  weir_savepoint point;
  cr_assert_not_null(mkdtemp(out));
  cr_assert_eq(found(out), 0);
  for (uint32_t slot = 0; slot < 2; slot++) { /* whichever of the two is the newer one */
    save(out, &r, slot, 7);
    save(out, &r, 1 - slot, 14);
    cr_assert_eq(found(out), 14, "slot %u is the older one", slot);
  }
  cr_assert_not(weir_savepoint_find(out, RUN + 1, WORKERS, &point), "of another run");
  cr_assert_not(weir_savepoint_find(out, RUN, WORKERS - 1, &point), "of more ranks");
  cr_assert_not(weir_savepoint_find(out, RUN, WORKERS + 1, &point), "of fewer ranks");
  /* Slot 0 has step 14.  A rank that is further on than the others has none of theirs. */
  const weir_savepoint ahead = at(1, 0, 21);
  cr_assert_eq(weir_savepoint_write(out, &ahead, r.trainer, r.session), WEIR_OK);
  cr_assert_eq(found(out), 7);
  save(out, &r, 0, 14);
  for (int k = 0; k < WORKERS; k++) {
    harm(out, k, 0, 500);
    cr_assert_eq(found(out), 7, "rank %d's file is damaged", k);
    save(out, &r, 0, 14);
  }
  g_autofree char *path = file_of(out, 1, 1);
  cr_assert_eq(unlink(path), 0);
  harm(out, 0, 0, 500);
  cr_assert_eq(found(out), 0);
  sweep(out);
  end(&r);
  weir_dataset_free(&data);
}

/* Weights, moments and the order of samples come back; of another run, rank or step, or damaged,
 * they are refused. */
Test(savepoint, is_what_was_saved) {
  weir_dataset data = synthetic();
  rank r = begin(&data, true);
  char out[] = "/tmp/weir-savepoint-XXXXXX", wanted[65], got[65];
  cr_assert_not_null(mkdtemp(out));
  train(r.trainer, 3);
  save(out, &r, 0, 3);
  train(r.trainer, 2);
  weir_trainer_weights_sha256(r.trainer, wanted);
  weir_savepoint point = at(1, 0, 3);
  rank again = begin(&data, false);
  cr_assert_eq(weir_savepoint_load(out, &point, again.trainer, again.session), WEIR_OK, "%s",
               weir_last_error());
  train(again.trainer, 2);
  weir_trainer_weights_sha256(again.trainer, got);
  cr_assert_str_eq(got, wanted);
  end(&again);
  weir_savepoint others[3] = {point, point, point};
  others[0].run++;
  others[1].committed++;
  others[2].workers++;
  for (int i = 0; i < 3; i++) {
    rank other = begin(&data, false);
    cr_assert_eq(weir_savepoint_load(out, &others[i], other.trainer, other.session),
                 WEIR_E_MISMATCH, "%d", i);
    end(&other);
  }
  harm(out, 1, 0, 500); /* in the weights, of which any value is one */
  rank harmed = begin(&data, false);
  cr_assert_eq(weir_savepoint_load(out, &point, harmed.trainer, harmed.session), WEIR_E_PARSE);
  end(&harmed);
  sweep(out);
  end(&r);
  weir_dataset_free(&data);
}
