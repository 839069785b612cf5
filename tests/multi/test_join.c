/* Ranks join a group that trains: what they get, what nobody loses, and who is refused. */
#include "join_course.h"

/* --- a run that grows and shrinks ------------------------------------------------------------- */

static double final_loss(course *c) {
  course_begin(c);
  course_end(c);
  return course_loss(c->seat[1].w);
}

/* 2 -> 4 -> 3 (the first rank 0 is lost) -> 8, and 4 all the time. */
Test(join, a_training_grows_and_shrinks) {
  course *still = course_new("fixed:topk:0.1:ag", COURSE_SECRET);
  course *moving = course_new("fixed:topk:0.1:ag", COURSE_SECRET);
  still->steps = moving->steps = 700;
  still->want[0] = 4;
  memcpy(moving->want, (int[COURSE_PHASES]){2, 4, 3, 8}, sizeof moving->want);
  moving->seat[2].phase = moving->seat[3].phase = 1;
  moving->victim_phase = 2;
  moving->victim = 0;
  for (int s = 4; s < COURSE_SEATS; s++) moving->seat[s].phase = 3;
  const double without = final_loss(still), with = final_loss(moving);
  printf("loss %.5f with changes, %.5f without, %.3f at first\n", with, without,
         course_loss((float[COURSE_N]){0}));
  cr_expect_lt(with, 1.05 * without);
  course_done(still);
  course_done(moving);
}
