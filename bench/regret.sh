#!/bin/bash
# What policy weir costs and harms: its time to a loss against the best fixed policy known in hindsight, its last
# loss against dense's, over workloads, networks and seeds, in virtual time.
#
#   bench/regret.sh [WEIR] [OUT] [--workloads mlp,gpt] [--networks 5ms-100,c1] [--seeds 1,2] [--steps 1000] ...
#
# `bench/regret.sh --help` lists all.  What has been trained is left in OUT and not trained again: an interrupted call
# is resumed by repeating it.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/regret.py" "$@"
