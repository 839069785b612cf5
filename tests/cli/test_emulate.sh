#!/bin/bash
# `weir emulate`: bad usage and bad input end with 2, say what was expected, and touch nothing.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
cd "$work" || exit 1

refused() { # WORDS ARGUMENTS...
  "$weir" emulate "${@:2}" >out 2>errors
  local code=$?
  [ $code -eq 2 ] && grep -qF -e "$1" errors && [ ! -s out ] && [ ! -e made ] && return
  fail "${*:2}: exit $code, expected 2 and '$1': $(cat errors out)"
}
demo=$source/scenarios/demo.ini
refused "expected a scenario file and a command"
refused "expected a command after the scenario" "$demo"
refused "expected a command after the scenario" "$demo" --
refused "expected a command after the scenario" "$demo" -- ""
refused "--network sim is unknown; expected auto, tc or uml" "$demo" --network sim --out made -- true
refused "--launcher slurm is unknown; expected none, torchrun or mpirun" "$demo" --launcher slurm -- true
refused "--workers 0 is not allowed" "$demo" --workers 0 -- true
refused "--epoch-s 0 is not allowed; expected seconds, more than 0" "$demo" --epoch-s 0 -- true
refused "--epoch-s 1s is not allowed" "$demo" --epoch-s 1s -- true
refused "--grace-s -1 is not allowed; expected seconds from 0" "$demo" --grace-s -1 -- true
refused "--timeout-s nan is not allowed" "$demo" --timeout-s nan -- true
refused "--memory-mib 12 is not allowed" "$demo" --memory-mib 12 -- true
refused "expected --out DIR" "$demo" --json -- true
refused "--out '' is not allowed" "$demo" --out "" -- true
refused "1024 workers over networks tc and uml; expected at most 1023" "$demo" --workers 1024 --out made -- true
refused "Unknown option --rate" "$demo" --rate 3 -- true
refused "nosuch.ini" nosuch.ini -- true
refused "expected a folder that can be written" "$demo" --out "$demo/made" -- true

network() { # LINES: what is said of a file with them and [scenario]
  { printf '[scenario]\nworkers = 2\n'; printf '%s\n' "$@"; } >file.ini
}
network
refused "file.ini:2: the file ends without a network" file.ini --out made -- true
network '[phase a]' 'seconds = 2' 'latency_ms = 0' 'bandwidth_gbps = 1' '[phase b]' 'epochs = 1-2' 'latency_ms = 0' 'bandwidth_gbps = 1'
refused "file.ini:7: [phase b] has no key seconds; expected it in every phase" file.ini --out made -- true
network '[phase a]' 'epochs = 1-2' 'latency_ms = 0' 'bandwidth_gbps = 1' '[phase b]' 'seconds = 2' 'latency_ms = 0' 'bandwidth_gbps = 1'
refused "file.ini:3: [phase a] has no key seconds" file.ini --out made -- true
network '[phase a]' 'latency_ms = 0' 'bandwidth_gbps = 1'
refused "file.ini:3: [phase a] has no key epochs; expected FIRST-LAST" file.ini --out made -- true
network '[phase a]' 'seconds = 0' 'latency_ms = 0' 'bandwidth_gbps = 1'
refused "file.ini:4: seconds = 0 is not allowed" file.ini --out made -- true
network '[phase a]' 'seconds = 1' 'latency_ms = 0' 'bandwidth_gbps = 1' '[phase b]' 'seconds = 1' 'latency_ms = 0' 'bandwidth_gbps = 1e-7'
refused "file.ini:7: [phase b]: a rate of 12.5 bytes/s: 125 to 1.25e+11 can be set" file.ini --out made -- true
network '[trace]' 'file = slots' 'latency_ms = 0' 'slot_bytes = 100'
printf '1\n2\n3\n2500\n' >slots
refused "file.ini:4: the trace at 1 s: a rate of 100 bytes/s" file.ini --out made -- true
network '[phase a]' 'epochs = 1-2' 'latency_ms = 0' 'bandwidth_gbps = 1' '[phase b]' 'epochs = 4' 'latency_ms = 0' 'bandwidth_gbps = 1'
refused "no phase for epoch 3" file.ini --out made -- true
printf '[phase a]\nseconds = 1\nlatency_ms = 0\nbandwidth_gbps = 1\n' >file.ini
refused "file.ini:4: the file ends without [scenario]" file.ini --out made -- true

# What a training needs is asked for by `weir run` alone.
network '[phase a]' 'seconds = 2' 'latency_ms = 0' 'bandwidth_gbps = 1' '[training]' 'batch = 4' 'learning_rate = 0.1' 'epochs = 2'
"$weir" run file.ini --out made >out 2>errors
[ $? -eq 2 ] && grep -qF "file.ini:3: [phase a] has no key epochs; expected FIRST-LAST" errors && [ ! -e made ] ||
  fail "weir run takes phases without epochs: $(cat errors)"

# A rate that no kernel can be set to is found before the training, not when its phase is due.
network '[phase a]' 'epochs = 1' 'latency_ms = 0' 'bandwidth_gbps = 1' '[phase b]' 'epochs = 2' 'latency_ms = 0' 'bandwidth_gbps = 1e-7' \
  '[training]' 'batch = 4' 'learning_rate = 0.1' 'epochs = 2' 'steps_per_epoch = 1' 'model = recommender'
"$weir" run file.ini --network tc --out made >out 2>errors
[ $? -eq 2 ] && [ ! -e made ] && grep -qE "file.ini:7: \[phase b\]: a rate of 12.5 bytes/s|network tc is not available" errors ||
  fail "weir run takes a rate that cannot be set: $(cat errors)"

# A report of something else.
report() { # WORDS JSON
  mkdir -p told
  printf '%s' "$2" >told/emulate.json
  "$weir" report told >out 2>errors
  local code=$?
  [ $code -eq 2 ] && grep -qF -e "$1" errors && [ ! -e told/report.html ] && return
  fail "report of $2: exit $code, expected 2 and '$1': $(cat errors)"
}
head='"scenario": "s", "network": "tc", "launcher": "none", "outcome": "done", "command": ["a"], "elapsed_s": 1, "exit_code": 0, "processes": []'
worker='{"address": "a", "sent_bytes": 1, "sent_packets": 1, "dropped_packets": 0, "received_bytes": 1}'
setting='{"phase": "", "begin_s": 0, "end_s": 1, "latency_ms": 0, "bandwidth_mbit_s": 1, "loss_percent": 0, "reorder_percent": 0, "duplicate_percent": 0}'
report "expected a JSON object" "[]"
report "'format' is missing" "{$head}"
report "'format' is none that this version reads" "{\"format\": 9, $head, \"settings\": [], \"workers\": [], \"samples\": []}"
report "there are no workers, or nothing was set" "{\"format\": 1, $head, \"settings\": [], \"workers\": [], \"samples\": []}"
report "'sent_bytes' must have 1 numbers, one a worker" "{\"format\": 1, $head, \"settings\": [$setting], \"workers\": [$worker], \"samples\": [{\"begin_s\": 0, \"end_s\": 1, \"sent_bytes\": [], \"received_bytes\": [1]}]}"
report "a sample must end after it begins" "{\"format\": 1, $head, \"settings\": [$setting], \"workers\": [$worker], \"samples\": [{\"begin_s\": 1, \"end_s\": 1, \"sent_bytes\": [1], \"received_bytes\": [1]}]}"
report "'received_bytes'[0] must be a number, 0 or more" "{\"format\": 1, $head, \"settings\": [$setting], \"workers\": [$worker], \"samples\": [{\"begin_s\": 0, \"end_s\": 1, \"sent_bytes\": [1], \"received_bytes\": [-1]}]}"

# Names, commands and phases are text in the page, whatever they hold.
printf '{"format": 1, %s, "settings": [%s], "workers": [%s], "samples": [{"begin_s": 0, "end_s": 1, "sent_bytes": [125000], "received_bytes": [1]}]}' \
  "${head/\"a\"/\"<script>alert(1)</script>\"}" "${setting/\"phase\": \"\"/\"phase\": \"<b>\"}" "$worker" >told/emulate.json
"$weir" report told >out 2>errors && grep -q "&lt;script&gt;alert" told/report.html && ! grep -q "<script>alert" told/report.html ||
  fail "the page: $(cat errors)"
