/* The forms of a pass of error feedback, each compiled by itself.  Included by feed8.h and
 * feed16.h. */

TARGET static void feed(const weir_feeding *f, weir_moments *moments) {
  feed_sums sums = no_feed_sums();
  const bool list = f->list != NULL;
  size_t i = 0;
  if (f->old != NULL) {
    i = list ? feed_vectors(f, &sums, true, true) : feed_vectors(f, &sums, false, true);
  } else {
    i = list ? feed_vectors(f, &sums, true, false) : feed_vectors(f, &sums, false, false);
  }
  double sum[WEIR_LANES];
  double square[WEIR_LANES];
  store_feed_sums(&sums, sum, square);
  weir_lanes_feed_rest(f, i, sum, square, sums.nonfinite, moments);
}
