#!/usr/bin/env bash
# `weir plan`: answers worked out by hand, and every bad input.
set -u
# shellcheck source=tests/script.sh
. "$2/tests/script.sh"
# refuse TEXT ARGUMENTS...: exit 2, nothing on stdout, TEXT on stderr.
refuse() {
  local out code
  out=$("$weir" plan "${@:2}" 2>"$work/err")
  code=$?
  [[ $code == 2 && -z $out ]] || fail "plan ${*:2}: exit $code, '$out'"
  grep -qF -- "$1" "$work/err" || fail "plan ${*:2}: $(cat "$work/err")"
}

# Four tensors of a megabyte, 1 ms apart; compression 1 ms a group, sending 0.5 ms and 0.25 ms a
# megabyte: one group ends at 4 + 1 + 0.5 + 1, any other division later.
profile=$work/profile.csv
printf 'tensor,numel,gap_us\na,250000,1000\nb,250000,1000\nc,250000,1000\nd,250000,1000\n' >"$profile"
json=$("$weir" plan fusion "$profile" --compress-ms 1,0 --comm-ms 0.5,0.25 --json) || fail "fusion"
close "$(value "$json" iteration_ms)" 6.5 || fail "$json"
[[ $json == *'"groups":[[0,3]],'* && $json == *'"solve_ms":'* ]] || fail "$json"
# Slow sending, free compression: each tensor leaves as it is ready; 1 + 4 * 2.
json=$("$weir" plan fusion "$profile" --compress-ms 0,0 --comm-ms 0,2 --json) || fail "fusion"
close "$(value "$json" iteration_ms)" 9 || fail "$json"
# The same by a table: 2 ms a megabyte.
printf 'bytes,ms\n1,0.000002\n1000000,2\n' >"$work/table.csv"
json=$("$weir" plan fusion "$profile" --compress-ms 0,0 --comm-table "$work/table.csv" --json) ||
  fail "fusion with a table"
close "$(value "$json" iteration_ms)" 9 || fail "$json"
"$weir" plan fusion "$profile" --compress-ms 1,0 --comm-ms 1,1 | grep -q '^  layer-wise  *4 ' ||
  fail "no table"
"$weir" plan fusion --help >"$work/help" || fail "fusion --help"
grep -q 'gap_us is part of it' "$work/help" || fail "help does not say what counts"
for key in iteration_ms groups solve_ms; do
  tr '\n' ' ' <"$work/help" | grep -Eq "$key (is|are) " || fail "help does not say what $key is"
done

"$weir" plan fusion "$profile" --compress-ms 1,0 --comm-ms 0.5,0.25 --trace "$work/t.json" >/dev/null ||
  fail "--trace"
# Four backward passes, the compression and the communication of one group.
[[ $(grep -c '"ph":"X"' "$work/t.json") == 6 ]] || fail "trace: $(cat "$work/t.json")"
[[ ! -e $work/t.json.partial ]] || fail "a partial trace is left"

printf 'tensor,numel,gap_us\na,1,0\na,1,0\n' >"$work/twice.csv"
printf 'tensor,numel,gap_us\na,1,-3\n' >"$work/negative.csv"
printf 'bytes,ms\n5,2\n6,1\n' >"$work/falls.csv"
: >"$work/empty.csv"
cost=(--compress-ms 1,0 --comm-ms 1,0)
refuse "$work/twice.csv:3: " fusion "$work/twice.csv" "${cost[@]}"
refuse "$work/negative.csv:2: " fusion "$work/negative.csv" "${cost[@]}"
refuse "$work/empty.csv:1: " fusion "$work/empty.csv" "${cost[@]}"
refuse "$work/falls.csv:3: " fusion "$profile" --compress-table "$work/falls.csv" --comm-ms 1,1
refuse "$work/absent.csv" fusion "$work/absent.csv" "${cost[@]}"
refuse "expected A,B" fusion "$profile" --compress-ms 1 --comm-ms 1,0
refuse "expected A,B" fusion "$profile" --compress-ms 1,0,0 --comm-ms 1,0
refuse "expected A,B" fusion "$profile" --compress-ms 1,nan --comm-ms 1,0
refuse "expected A,B" fusion "$profile" --compress-ms=-1,0 --comm-ms 1,0
refuse "one of the two" fusion "$profile" --compress-ms 1,0
refuse "one of the two" fusion "$profile" "${cost[@]}" --comm-table "$work/table.csv"
refuse "/nowhere/t.json" fusion "$profile" "${cost[@]}" --trace /nowhere/t.json
refuse "expected one" fusion
refuse "expected one" fusion "$profile" "$profile" "${cost[@]}"
refuse "--nonsense" fusion "$profile" --nonsense
# Both large layers go to 2 bits, the small one and the norm do not: 2000 + 1975 + 40 + 4 * 100.
stats=$work/stats.csv
cat >"$stats" <<'EOF'
layer,numel,norm,bits,bucket,bytes,error
huge,8000,1,2,128,2000,3
huge,8000,1,4,128,4000,1
huge2,7900,1.5,2,128,1975,3
huge2,7900,1.5,4,128,3950,1
tiny,80,9,2,128,20,8
tiny,80,9,4,128,40,2
LayerNorm,100,5,4,128,50,9
EOF
json=$("$weir" plan bits "$stats" --alpha 2 --json) || fail "bits"
close "$(value "$json" bytes)" 4415 || fail "$json"
close "$(value "$json" least_bytes)" 4415 || fail "$json"
[[ $json == *'{"layer":"huge","bits":2,"bucket":128}'* ]] || fail "$json"
[[ $json == *'{"layer":"LayerNorm","bits":32,"bucket":0}'* ]] || fail "$json"
json=$("$weir" plan bits "$stats" --method uniform --keep "" --json) || fail "bits, uniform"
close "$(value "$json" bytes)" 8040 || fail "$json"
"$weir" plan bits "$stats" | grep -q '^  kmeans  *4415 ' || fail "no table"
sed '3s/,1$/,-1/' "$stats" >"$work/wrong.csv"
refuse "$work/wrong.csv:3: " bits "$work/wrong.csv"
refuse "$stats:2: layer 'huge': expected a line of 4 bits and bucket 64" bits "$stats" --bucket 64
refuse "a number from 1" bits "$stats" --alpha 0.5
refuse "a number of elements" bits "$stats" --bucket 0
refuse "knapsack, kmeans" bits "$stats" --method best

[[ $("$weir" plan strategy --list-options | tail -1) == "4341 options" ]] || fail "4341 options"
[[ $("$weir" plan strategy --list-options --no-hierarchical --no-cpu | wc -l) == 13 ]] ||
  fail "12 flat options on the GPU"
[[ $("$weir" plan strategy --list-options --no-flat --json) == '{"count":4278,"options":["'* ]] ||
  fail "JSON of options"
[[ $("$weir" plan strategy --list-executed | head -1) == "4341 of 4341 options are executed on host memory" ]] ||
  fail "options that are executed"
# Of the flat ones 3 and 16 place all that follows the first communication on the CPU.
[[ $("$weir" plan strategy --list-executed --no-hierarchical --json) == '{"count":63,"executed":63,"placed":19,'* ]] ||
  fail "JSON of options that are executed"
refuse "no file with" strategy --list-executed "$profile"
refuse "the constraints leave no option" strategy --list-executed --no-flat --no-hierarchical
refuse "the constraints leave no option" strategy --list-options --no-flat --no-hierarchical
refuse "one PROFILE.csv, or --list-options" strategy
refuse "expected no file" strategy --list-options "$profile"
refuse "from 0" strategy --list-options --most-compressions=-1


# Two machines of one worker, 1 ms and 8 Mbit/s = 1 ms a kilobyte; 1000 elements, ready after 2 ms.
# Dense: a ring of two takes 2 ms and 4 ms.  Compressed to a tenth on the GPU at 0.5 ms: 0.5 ms, 1 ms
# and 0.4 ms for the all-gather, 0.5 ms to decompress.
small=$work/small.csv
printf 'tensor,numel,gap_us\nonly,1000,2000\n' >"$small"
two=(--machines 2 --per-machine 1 --inter 1000,0.008 --codec "tenth,0.1" --gpu-ms 0.5,0 --cpu-ms 9,0)
json=$("$weir" plan strategy "$small" "${two[@]}" --exact 1e6 --compare --json) || fail "strategy"
close "$(value "$json" iteration_ms)" 4.4 || fail "$json"
close "$(value "$json" none)" 8 || fail "$json"
close "$(value "$json" layer-wise)" 4.4 || fail "$json"
close "$(value "$json" upper_bound_ms)" 3.4 || fail "$json"
[[ $json == *'"exact":true'* && $json == *'"codec":"tenth"'* && $json == *'"options":4341'* ]] ||
  fail "$json"
# The same may not be compressed, or not on the GPU: 2 + 6; 2 + 9 + 1.4 + 9 is no better.
for only in "--plain ONLY" "--no-gpu"; do
  # shellcheck disable=SC2086
  json=$("$weir" plan strategy "$small" "${two[@]}" $only --json) || fail "strategy $only"
  close "$(value "$json" iteration_ms)" 8 || fail "$only: $json"
done
# The same by the algorithms as printed; on the CPU it would take longer.
json=$("$weir" plan strategy "$small" "${two[@]}" --search published --json) || fail "--search published"
close "$(value "$json" iteration_ms)" 4.4 || fail "$json"
close "$(value "$json" bytecomp)" 4.4 || fail "$json"
[[ $json != *'"weir"'* && $json != *upper_bound_ms* && $json == *'"timelines":'* ]] || fail "$json"
refuse "fast or published" strategy "$small" --search slow
refuse "no --fuse, --compare or --exact" strategy "$small" --search published --fuse
refuse "begins with no compression" strategy "$small" --search published --compressed
# Two such tensors 0.1 ms apart fuse: 2.1 + 0.5 + 1 + 0.8 + 0.5, and the links are used once.
printf 'tensor,numel,gap_us\na,1000,2000\nb,1000,100\n' >"$work/pair.csv"
json=$("$weir" plan strategy "$work/pair.csv" "${two[@]}" --fuse --fuse-ms 60000 --json) || fail "strategy --fuse"
close "$(value "$json" iteration_ms)" 4.9 || fail "$json"
[[ $json == *'"groups":[[0,1]]'* && $json != *upper_bound_ms* ]] || fail "$json"
"$weir" plan strategy "$small" "${two[@]}" --trace "$work/s.json" >/dev/null || fail "strategy --trace"
[[ $(grep -c '"ph":"X"' "$work/s.json") == 4 ]] || fail "trace: $(cat "$work/s.json")"
"$weir" plan strategy "$profile" | grep -q '^  bytecomp ' || fail "no table of methods"

refuse "$work/twice.csv:3: " strategy "$work/twice.csv"
refuse "$work/negative.csv:2: " strategy "$work/negative.csv"
refuse "$work/empty.csv:1: " strategy "$work/empty.csv"
printf 'tensor,numel,gap_us\na,nan,0\n' >"$work/nan.csv"
refuse "$work/nan.csv:2: " strategy "$work/nan.csv"
refuse "$work/nan.csv:2: " fusion "$work/nan.csv" "${cost[@]}"
refuse "$work/absent.csv" strategy "$work/absent.csv"
refuse "a number above 0" strategy "$small" --fuse --fuse-ms 0
refuse "no option for tensor 'only'" strategy "$small" --compressed --plain only
refuse "the constraints leave no option" strategy "$small" --no-flat --no-hierarchical
refuse "the constraints leave no option" strategy "$small" --no-indivisible --no-divisible
refuse "routines as" strategy "$small" --forbid gossip
refuse "NAME,RATIO" strategy "$small" --codec dgc
refuse "--codec foo with --out: expected CODEC:CR" strategy "$small" --codec foo,0.1 --out "$work/none.csv"
refuse "CODEC:CR,RATIO of a codec that goes" strategy "$small" --codec powersgd:4,0.1 --out "$work/none.csv"
[ -e "$work/none.csv" ] && fail "a table of a codec that there is not"
refuse "NAME,RATIO" strategy "$small" --codec dgc,1.5
refuse "NAME,RATIO" strategy "$small" --codec dgc,nan
refuse "at most 4" strategy "$small" --codec a,1 --codec b,1 --codec c,1 --codec d,1 --codec e,1
refuse "US,GBPS" strategy "$small" --inter 1,0
refuse "US,GBPS" strategy "$small" --intra=-1,5
refuse "A,B" strategy "$small" --gpu-ms 1
refuse "A,B" strategy "$small" --cpu-decompress-ms 1,-1
refuse "numbers from 1" strategy "$small" --machines 0
refuse "CPU cores" strategy "$small" --cpu-cores 65
refuse "a number from 0" strategy "$small" --exact=-1
refuse "/nowhere/s.json" strategy "$small" --trace /nowhere/s.json

# 400 layers: the knapsack's bytes <= kmeans's <= those of 4 bits everywhere, at the same error.
awk 'BEGIN { print "layer,numel,norm,bits,bucket,bytes,error"; srand(7)
  for (l = 0; l < 400; l++) { n = 100 * int(1 + 1000 * rand()); norm = 0.1 + 10 * rand()
    for (b = 2; b <= 8; b++) printf "l%d,%d,%.6f,%d,128,%d,%.9f\n", l, n, norm, b, n * b / 8, norm / (2 ^ b - 1) } }' \
  >"$work/many.csv"
table=$("$weir" plan bits "$work/many.csv" --alpha 1) || fail "bits, 400 layers"
bytes() { awk -v m="$1" '$1 == m { print $2; exit }' <<<"$table"; }
[[ $(bytes knapsack) -le $(bytes kmeans) && $(bytes kmeans) -le $(bytes uniform) &&
   $(bytes knapsack) -lt $(bytes uniform) ]] || fail "bits: $table"

# Tables for policy groups:.
table=$work/out.csv
"$weir" plan fusion "$profile" --compress-ms 1,0 --comm-ms 0.5,0.25 --plan topk:0.01:ag --out "$table" >/dev/null ||
  fail "fusion --out"
[[ $(<"$table") == $'last,plan,place\nd,topk:0.01:ag,caller' ]] || fail "$(<"$table")"
"$weir" plan strategy "$small" "${two[@]/tenth/topk:0.05}" --out "$table" >/dev/null || fail "strategy --out"
[[ $(<"$table") == $'last,plan,place\nonly,topk:0.05:ag,caller' ]] || fail "$(<"$table")"
"$weir" plan strategy "$work/pair.csv" "${two[@]/tenth/topk:0.05}" --fuse --fuse-ms 60000 --out "$table" >/dev/null ||
  fail "strategy --fuse --out"
[[ $(<"$table") == $'last,plan,place\nb,topk:0.05:ag,caller' ]] || fail "$(<"$table")"
# What is no file is written to, not replaced by one.
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/piped" &
"$weir" plan strategy "$work/pair.csv" "${two[@]/tenth/topk:0.05}" --fuse --out "$work/pipe" >/dev/null || fail "--out to a pipe"
wait
[[ -p $work/pipe && $(<"$work/piped") == last,plan,place*topk:0.05:ag,caller ]] || fail "a pipe: $(<"$work/piped")"
refuse "/dev/full: cannot be written" bits "$stats" --out /dev/full
# Machines of two: compressed once and added up by all it takes one latency between machines, and hier-sra two.
"$weir" plan strategy "$small" --machines 2 --per-machine 2 --inter 1000,0.008 --codec qsgd:0.125,0.13 --gpu-ms 0.001,0 \
  --no-flat --out "$table" >/dev/null || fail "strategy --out on machines"
[[ $(<"$table") == $'last,plan,place\nonly,qsgd:0.125:path=rs.c.ag.ag.d,caller' ]] || fail "$(<"$table")"
"$weir" plan bits "$stats" --out "$table" >/dev/null || fail "bits --out"
[[ $(<"$table") == $'last,plan,place\nhuge2,qsgd:0.0625:sra,caller\ntiny,qsgd:0.125:sra,caller\nLayerNorm,none:1:dense,caller' ]] ||
  fail "$(<"$table")"
"$weir" plan bits "$stats" --collective ag-ring --out "$table" >/dev/null && grep -q 'tiny,qsgd:0.125:ag-ring,' "$table" ||
  fail "bits --collective"
# The two large layers are as good in buckets of 1024, which take fewer bytes.
awk -F, -v OFS=, '1; /^huge/ { $5 = 1024; $6 -= 50; print }' "$stats" >"$work/sizes.csv"
"$weir" plan bits "$work/sizes.csv" --out "$table" >/dev/null || fail "bits --out, sizes"
grep -qx 'huge2,qsgd:0.0625:sra:bucket=1024,caller' "$table" && [[ $(wc -l <"$table") == 4 ]] || fail "$(<"$table")"
# What was never quantized goes apart, by its name letter for letter; "norm" alone is a bucket of full precision.
{ cat "$stats"; echo 'odd*[1],64,0,32,0,256,0'; } >"$work/apart.csv"
"$weir" plan bits "$work/apart.csv" --out "$table" >/dev/null || fail "bits --out, apart"
[[ $(<"$table") == $'last,plan,place\nodd\\*\\[1\\],full,caller\nhuge2,'*$'\nLayerNorm,none:1:dense,caller' ]] ||
  fail "$(<"$table")"
# In time: two workers, 10 ms one way, bytes that count for nothing.  Scattering and gathering take a latency each, so the
# first bucket's exchange ends at 22, its gradients being there after 2 ms, or at 23 once it was also quantized, and the
# second's 20 ms later; full precision takes one latency more, both sending all they have.
printf 'tensor,numel,gap_us\nhuge,8000,1000\nhuge2,7900,1000\ntiny,80,1000\nLayerNorm,100,1000\n' >"$work/bits.csv"
in_time=(--profile "$work/bits.csv" --link 10000,1e8 --workers 2)
close "$(value "$("$weir" plan bits "$stats" "${in_time[@]}" --json)" iteration_ms)" 52 || fail "bits --profile"
close "$(value "$("$weir" plan bits "$stats" "${in_time[@]}" --compress-ms 1,0 --json)" iteration_ms)" 53 ||
  fail "bits --profile --compress-ms"
"$weir" plan bits "$stats" "${in_time[@]}" | grep -q '^  an iteration with the widths below: 52.0' || fail "bits --profile"
# A link of 8 kbit/s, a millisecond a byte: what goes apart, 64 elements of 4 bytes, follows what is in buckets, and no
# latency counts; headers take 66 bytes with every 1448.
without=$(value "$("$weir" plan bits "$stats" "${in_time[@]}" --link 0,0.000008 --json)" iteration_ms)
{ head -1 "$work/bits.csv"; echo 'odd*[1],64,0'; tail -n +2 "$work/bits.csv"; } >"$work/bits-apart.csv"
with=$(value "$("$weir" plan bits "$work/apart.csv" "${in_time[@]}" --profile "$work/bits-apart.csv" --link 0,0.000008 --json)" iteration_ms)
awk "BEGIN { more = $with - $without; exit !(more > 256 && more < 269) }" || fail "what goes apart: $without, $with"
# A link of 1 Mbit/s and 10 ms could save up 1250 bytes while it waits, but has a burst of 100 alone.  The first bucket waits
# twice and full precision once: 300 bytes; tiny twice, for messages shorter than that: two halves of 20 bytes and their
# headers.  A byte takes 8 us and what headers add.
without=$(value "$("$weir" plan bits "$stats" "${in_time[@]}" --link 10000,0.001 --json)" iteration_ms)
with=$(value "$("$weir" plan bits "$stats" "${in_time[@]}" --link 10000,0.001 --burst 100 --json)" iteration_ms)
awk "BEGIN { less = $without - $with; exit !(less > 340 * 0.008 && less < 400 * 0.00837) }" || fail "a burst: $without, $with"
rm "$table"
for alone in "--burst 100" "--workers 8" "--compress-ms 1,0"; do # say nothing of no iteration
  # shellcheck disable=SC2086
  refuse "${alone% *}: expected --profile and --link beside it" bits "$stats" $alone
done
refuse "--burst: expected a number of bytes" bits "$stats" "${in_time[@]}" --burst -1
refuse "both, or neither" bits "$stats" --profile "$work/bits.csv"
refuse "--workers: expected a number from 2" bits "$stats" "${in_time[@]}" --workers 1
refuse "Gbit/s above 0" bits "$stats" "${in_time[@]}" --link 1,0
refuse "milliseconds an operation" bits "$stats" "${in_time[@]}" --compress-ms 1
refuse "$work/bits-apart.csv: 5 tensors: expected the 4 layers" bits "$stats" "${in_time[@]}" --profile "$work/bits-apart.csv"
sed 's/^huge2,7900/huge2,7901/' "$work/bits.csv" >"$work/bits-other.csv"
refuse "expected a tensor 'huge2' of 7900 elements" bits "$stats" "${in_time[@]}" \
  --profile "$work/bits-other.csv"
sed "3{h;d};4G" "$work/bits.csv" >"$work/bits-late.csv"
refuse "tensor 'tiny': expected behind 'huge2'" bits "$stats" "${in_time[@]}" --profile "$work/bits-late.csv"
# Also within a bucket, whose last gradient would not be the last to come.
sed "2{h;d};3G" "$work/bits.csv" >"$work/bits-late.csv"
refuse "tensor 'huge2': expected behind 'huge'" bits "$stats" "${in_time[@]}" --profile "$work/bits-late.csv"
# Finite costs whose sums are not.
printf 'tensor,numel,gap_us\na,1099511627776,1\nb,1099511627776,1\n' >"$work/large.csv"
refuse "no finite time" fusion "$work/large.csv" --compress-table "$work/table.csv" --comm-ms 0,1e308
refuse "a finite time" fusion "$work/large.csv" --compress-ms 0,1 --comm-ms 0,1e308
refuse "both, or neither" fusion "$profile" "${cost[@]}" --out "$table"
refuse "both, or neither" fusion "$profile" "${cost[@]}" --plan none:1:dense
refuse "ratio 2 is outside" fusion "$profile" "${cost[@]}" --plan topk:2:ag --out "$table"
refuse "/nowhere/out.csv" fusion "$profile" "${cost[@]}" --plan none:1:dense --out /nowhere/out.csv
refuse "/nowhere/out.csv" strategy "$small" --out /nowhere/out.csv
refuse "/nowhere/out.csv" bits "$stats" --out /nowhere/out.csv
refuse "--codec tenth with --out: expected CODEC:CR" strategy "$small" "${two[@]}" --search published --out "$table"
refuse "goes with ag, compressed" bits "$stats" --collective art --out "$table"
sed 's/,128,/,96,/' "$stats" >"$work/narrow.csv"
refuse "$work/narrow.csv:2: layer 'huge' gets" bits "$work/narrow.csv" --bucket 96 --out "$table"
[[ ! -e $table ]] || fail "a refused plan left a table"

refuse "unknown plan" nonsense
refuse "usage"

echo "weir plan answers and refuses as it should"
