# What the tests of launchers share: a short training, and the digest of the weights it ends with.
weir=$1
folder=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap finish EXIT
fail() {
  echo "FAILED: $*"
  for log in "$folder"/*.log; do [[ -e $log ]] && tail -20 "$log"; done
  exit 1
}
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT WEIR_RENDEZVOUS
while read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(OMPI_|PMI|SLURM_|TORCHELASTIC_)')
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What Open MPI itself does not give back is not looked for.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# shellcheck source=tests/images.sh
. "$source/tests/images.sh"
few_images "$folder/few" || fail "no images"
cat >"$folder/short.ini" <<END
[scenario]
name = short
workers = 4
seed = 3
timeout_s = 120

[training]
dataset = fashion-mnist
data_dir = $folder/few
model = mlp
batch = 16
learning_rate = 0.1
momentum = 0.8
weight_decay = 0.0005
epochs = 3
steps_per_epoch = 4

[phase all]
epochs = 1-3
latency_ms = 1
bandwidth_gbps = 10
END

# The digest in a folder's summary, which must be that of all four ranks.
digest() {
  local digests
  digests=$(grep -oE '"[0-9a-f]{64}"' "$1/summary.json" | sort | uniq -c)
  [[ $(wc -l <<<"$digests") == 1 && $digests == *" 4 "* ]] || fail "$1: not one digest of 4 ranks"
  grep -oE '[0-9a-f]{64}' <<<"$digests"
}

# What the policy $1 trains to over a network that is only computed.
expected() {
  "$weir" run "$folder/short.ini" --out "$folder/sim" --network sim --policy "$1" \
    >"$folder/sim.log" 2>&1 || fail "weir run --network sim --policy $1"
  digest "$folder/sim"
}
