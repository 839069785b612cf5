#!/bin/bash
# The shipped scenario of hidden communication, in virtual time: what it is for holds.  Its workers pass over
# gradients and multiply matrices far slower than any machine of today, so that processors' own times hardly show.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
needs_images
! sanitized || skip "a sanitizer's times are not the scenario's"
"$weir" profile "$source/scenarios/overlap.ini" -o "$work/out" -n sim --within 10 --json > "$work/json" 2> "$work/log" ||
  fail "$(tail -1 "$work/log")"
python3 - "$work" <<'PY' || fail "what it is for"
import csv, json, sys
told = json.load(open(sys.argv[1] + '/json'))
runs = {r['division']: r for r in told['runs']}
# The plan is the scenario's own; 16 slices of fc1, 6 of fc2 (64 rows of 784 and 196 of 1024 hold at most
# 50176 elements; 1024 * 256 / 50176 is 5.2), fc3 and three biases.
assert {r['plan'] for r in told['runs']} == {'topk:0.08:ag:auto-bf16'}, told
assert runs['slices']['groups'] == 16 + 6 + 1 + 3 and runs['layers']['groups'] == 6, told
assert told['over_one'] >= 1.2 and told['over_layers'] >= 1.2, told
assert told['off_percent'] <= 10 and told['order_right'] == told['order_pairs'] >= 8, told
# Undivided: error feedback and selection of 1068810 elements at 3 Gbit/s are 22.8 ms; two more passes follow.
compress, comm = ({int(r['bytes']): float(r['ms']) for r in csv.DictReader(open(sys.argv[1] + '/out/' + name))}
                  for name in ('compress-1.csv', 'comm-1.csv'))
assert 22.8 <= compress[4275240] < 30, compress
assert comm[4275240] > 22.8, comm
PY
echo ok
