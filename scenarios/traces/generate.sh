#!/bin/sh
# Make synthetic.down: 60 s of packet slots whose rate wanders between 0.2 and 4 Mbit/s, with two
# outages of a second.  The same on every run: awk with a seed of its own generator (Park-Miller).
awk '
function uniform() { state = (state * 16807) % 2147483647; return state / 2147483647 }
BEGIN {
  state = 20
  rate = 2
  due = 0
  for (ms = 0; ms < 60000; ms++) {
    if (ms % 500 == 0) {
      rate *= exp(0.6 * (uniform() + uniform() + uniform() - 1.5))
      if (rate > 4) rate = 4
      if (rate < 0.2) rate = 0.2
    }
    outage = (ms >= 23000 && ms < 24000) || (ms >= 47000 && ms < 48000)
    if (!outage) due += rate * 1e6 / 12000 / 1000
    while (due >= 1) { print ms; due-- }
  }
}' >"$(dirname "$0")/synthetic.down"
