/* The forms of a pass of error feedback, each compiled by itself.  Included by feed8.h and
 * feed16.h. */

TARGET static void feed(const weir_feeding *f, weir_moments *moments) {
  feed_sums sums = no_feed_sums();
  const size_t i = f->list != NULL ? feed_vectors(f, &sums, true) : feed_vectors(f, &sums, false);
  double sum[WEIR_LANES];
  double square[WEIR_LANES];
  store_feed_sums(&sums, sum, square);
  weir_lanes_feed_rest(f, i, sum, square, sums.nonfinite, moments);
}
