#include "netmon/channel.h"

#include <math.h>
#include <string.h>

/* CUSUM in units of the spread: a sample counts for at most clip, drift is what noise may add, and
 * alarm needs three samples of a clear step. */
static const double clip = 5, drift = 1.5, alarm = 9;
static const double first_spread = 0.1, min_spread = 0.02, max_deviation = 2, spread_rate = 0.05;
/* A step is believed once so many samples speak for it that noise alone, going by the share of
 * outliers seen so far, would do that with a chance of less than the channel's. */
enum { BELIEVED = 3, MOST_BELIEVED = 24 };
static const double usual_chance = 1e-6, first_beyond = 0.05, min_beyond = 0.004,
                    beyond_rate = 0.01;
/* So soon after a change the settled value is still being found: moves of it are no new change. */
enum { SETTLING = 16 };
/* A single sample may hardly outweigh the others, however small its own error. */
static const double common_error = 0.03;

void weir_channel_init(weir_channel *channel, double quantile, double change_threshold,
                       double window_s) {
  memset(channel, 0, sizeof *channel);
  channel->quantile = quantile;
  channel->threshold = log1p(change_threshold);
  channel->window_s = window_s;
  channel->chance = usual_chance;
  channel->spread[0] = channel->spread[1] = first_spread;
  channel->beyond[0] = channel->beyond[1] = first_beyond;
}

static double weight(const weir_channel_sample *sample) {
  return 1 / (common_error * common_error + sample->error * sample->error);
}

/* The newest n, ascending, by insertion: qsort would take memory for so many in every step. */
static void sort_newest(const weir_channel *channel, size_t n, weir_channel_sample *sorted) {
  const weir_channel_sample *newest = channel->sample + channel->count - n;
  for (size_t i = 0; i < n; i++) {
    size_t at = i;
    for (; at > 0 && sorted[at - 1].x > newest[i].x; at--) sorted[at] = sorted[at - 1];
    sorted[at] = newest[i];
  }
}

/* Weighted quantile of the newest n samples: the sample at which the cumulated weight, each
 * sample's own counted half, comes nearest to the wanted share. */
static double quantile_of_newest(const weir_channel *channel, size_t n) {
  weir_channel_sample sorted[WEIR_CHANNEL_KEPT];
  sort_newest(channel, n, sorted);
  double total = 0, below = 0;
  for (size_t i = 0; i < n; i++) total += weight(&sorted[i]);
  size_t best = 0;
  double nearest = INFINITY;
  for (size_t i = 0; i < n; i++) {
    const double share = (below + weight(&sorted[i]) / 2) / total;
    if (fabs(share - channel->quantile) < nearest) {
      nearest = fabs(share - channel->quantile);
      best = i;
    }
    below += weight(&sorted[i]);
  }
  return sorted[best].x;
}

static void drop_oldest(weir_channel *channel, size_t n) {
  channel->count -= n;
  memmove(channel->sample, channel->sample + n, channel->count * sizeof *channel->sample);
}

/* Make room: the oldest sample goes that weighs no more than the newest, so that many weak ones do
 * not push out a strong one before its time.  Those that speak for a change stay. */
static void drop_weakest(weir_channel *channel, const weir_channel_sample *newest) {
  const size_t held = channel->onset[0] > channel->onset[1] ? channel->onset[0] : channel->onset[1];
  const size_t end = held < channel->count ? channel->count - held : 0;
  size_t i = 0;
  while (i < end && weight(&channel->sample[i]) > weight(newest)) i++;
  if (i >= end) i = 0;
  channel->count--;
  memmove(channel->sample + i, channel->sample + i + 1,
          (channel->count - i) * sizeof *channel->sample);
}

static void append(weir_channel *channel, const weir_channel_sample *sample) {
  if (channel->count == WEIR_CHANNEL_KEPT) drop_weakest(channel, sample);
  channel->sample[channel->count++] = *sample;
  size_t expired = 0;
  while (channel->count - expired > BELIEVED &&
         channel->sample[expired].time_s < sample->time_s - channel->window_s)
    expired++;
  drop_oldest(channel, expired);
}

/* Count a change when the settled value has left the announced one by more than the threshold. */
static bool announce(weir_channel *channel, bool restarted) {
  channel->since++;
  if (channel->changes && !restarted && channel->since < SETTLING)
    channel->announced = channel->settled;
  if (channel->changes && fabs(channel->settled - channel->announced) <= channel->threshold)
    return false;
  channel->announced = channel->settled;
  channel->since = 0;
  channel->changes++;
  return true;
}

/* Follow the noise on each side. */
static void follow_noise(weir_channel *channel, double deviation) {
  const int side = deviation > 0;
  const double size = fmin(fabs(deviation), max_deviation);
  channel->spread[side] += spread_rate * (size - channel->spread[side]);
  channel->spread[side] = fmax(channel->spread[side], min_spread);
  for (int i = 0; i < 2; i++) {
    const double far = i == side && size > channel->threshold ? 1 : 0;
    channel->beyond[i] =
        fmax(min_beyond, channel->beyond[i] + beyond_rate * (far - channel->beyond[i]));
  }
}

/* One side's sum; true when it says that the newest samples lie elsewhere. */
static bool accumulate(weir_channel *channel, int side, double deviation, double error) {
  const double away = side ? deviation : -deviation;
  const double scale = fmax(channel->spread[side], error);
  channel->sum[side] = fmax(0, channel->sum[side] + fmin(away / scale, clip) - drift);
  channel->onset[side] = channel->sum[side] > 0 ? channel->onset[side] + 1 : 0;
  if (channel->onset[side] <= 1) {
    channel->spread_at_onset[side] = channel->spread[side];
    channel->beyond_at_onset[side] = channel->beyond[side];
  }
  return channel->sum[side] > alarm;
}

static size_t believed_after(double beyond, double chance) {
  /* One standard deviation of the running share on top. */
  const double share = fmin(beyond + sqrt(beyond * beyond_rate / 2), 0.9);
  const double n = ceil(log(chance) / log(share));
  return n < BELIEVED ? BELIEVED : n > MOST_BELIEVED ? MOST_BELIEVED : (size_t)n;
}

/* Do the samples since the onset settle beyond the threshold?  Then they are the new window. */
static bool restart(weir_channel *channel, int side) {
  size_t n = channel->onset[side];
  if (n > channel->count) n = channel->count;
  size_t speaking = 0;
  for (size_t i = channel->count - n; i < channel->count; i++) {
    const double away = channel->sample[i].x - channel->settled;
    speaking += (side ? away : -away) > channel->threshold;
  }
  const bool believed = speaking >= believed_after(channel->beyond_at_onset[side], channel->chance);
  if (!believed && n < WEIR_CHANNEL_KEPT / 2) return false; /* the sum stays where it is */
  const double value = quantile_of_newest(channel, n);
  const double moved = side ? value - channel->settled : channel->settled - value;
  channel->sum[0] = channel->sum[1] = 0;
  channel->onset[0] = channel->onset[1] = 0;
  if (!believed || moved <= channel->threshold) return false;
  drop_oldest(channel, channel->count - n);
  channel->settled = value;
  /* The step was no noise. */
  channel->spread[side] = channel->spread_at_onset[side];
  channel->beyond[side] = channel->beyond_at_onset[side];
  return true;
}

bool weir_channel_feed(weir_channel *channel, double time_s, double value, double error) {
  return weir_channel_feed_low(channel, time_s, value, error, error);
}

bool weir_channel_feed_low(weir_channel *channel, double time_s, double value, double error,
                           double low_error) {
  const weir_channel_sample sample = {.time_s = time_s, .x = log(value), .error = error};
  append(channel, &sample);
  channel->newest_s = time_s;
  if (!channel->changes) {
    channel->settled = sample.x;
    return announce(channel, true);
  }
  const double deviation = sample.x - channel->settled;
  bool restarted = false;
  const bool settling = channel->changes == 1 && channel->since < SETTLING;
  for (int side = 0; side < 2 && !restarted; side++)
    if (accumulate(channel, side, deviation, side ? error : low_error) && !settling)
      restarted = restart(channel, side);
  if (!restarted) {
    follow_noise(channel, deviation);
    /* Samples under suspicion must not drag the settled value before it is decided. */
    const size_t held =
        channel->onset[0] > channel->onset[1] ? channel->onset[0] : channel->onset[1];
    if (settling || !weir_channel_moving(channel) || held >= channel->count || held > MOST_BELIEVED)
      channel->settled = quantile_of_newest(channel, channel->count);
  }
  return announce(channel, restarted);
}

void weir_channel_contradict_fall(weir_channel *channel) {
  channel->sum[0] = fmax(0, channel->sum[0] - clip);
  if (channel->sum[0] <= 0) channel->onset[0] = 0;
}

bool weir_channel_assert(weir_channel *channel, double time_s, double value, double error) {
  const weir_channel_sample sample = {.time_s = time_s, .x = log(value), .error = error};
  const bool departs = channel->changes && fabs(sample.x - channel->settled) > channel->threshold;
  if (departs) channel->count = 0;
  append(channel, &sample);
  channel->newest_s = time_s;
  channel->sum[0] = channel->sum[1] = 0;
  channel->onset[0] = channel->onset[1] = 0;
  if (channel->changes && !departs) {
    follow_noise(channel, sample.x - channel->settled);
    channel->settled = quantile_of_newest(channel, channel->count);
    return announce(channel, false);
  }
  channel->settled = sample.x;
  channel->since += SETTLING; /* nothing is left to be found */
  return announce(channel, true);
}

double weir_channel_value(const weir_channel *channel) {
  return channel->changes ? exp(channel->settled) : 0;
}

double weir_channel_error(const weir_channel *channel) {
  if (!channel->count) return 0;
  double total = 0, away = 0, single = INFINITY;
  for (size_t i = 0; i < channel->count; i++) {
    const double w = weight(&channel->sample[i]);
    total += w;
    away += w * fmin(fabs(channel->sample[i].x - channel->settled), 1);
    single = fmin(single, channel->sample[i].error);
  }
  /* 1.25: standard deviation over mean deviation of a normal distribution. */
  const double scatter = fmax(1.25 * away / total, fmax(single, common_error));
  return scatter / sqrt((double)channel->count);
}

bool weir_channel_moving(const weir_channel *channel) {
  return channel->sum[0] > alarm / 2 || channel->sum[1] > alarm / 2;
}
