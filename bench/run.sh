#!/usr/bin/env bash
# Every benchmark at a moderate size, one after the other: tables on stdout, JSON under bench/results/.
# Nothing else should run on the machine. BENCH_SCRATCH chooses the disk, BENCH_CPUS the jobs side by side.
set -euo pipefail
cd "$(dirname "$0")/.."

neap=${NEAP_BIN:-$PWD/target/release/neap}
results=bench/results
# As many jobs side by side as there are cores: more would only wait for each other.
cpus=${BENCH_CPUS:-$(nproc)}
(( cpus <= 64 )) || cpus=64
scratch=()
[[ -n ${BENCH_SCRATCH:-} ]] && scratch=(--scratch "$BENCH_SCRATCH")

if [[ ! -x $neap ]]; then
  echo "bench: $neap is not there; build it with: make build" >&2
  exit 1
fi
mkdir -p "$results"

# measure NAME ARGUMENTS...: a server of its own on the disk that is measured.
measure() { alone "$@" "${scratch[@]}"; }

# alone NAME ARGUMENTS...: no server.
alone() {
  local name=$1
  shift
  echo "== neap bench $*"
  "$neap" bench "$@" --save "$results/$name.json" --only-show-errors
  echo
}

measure noop-off noop --jobs 2000 --nodes 1 --cpus "$cpus" --isolation off
measure noop-full noop --jobs 2000 --nodes 1 --cpus "$cpus" --isolation full
measure latency latency --jobs 200
measure cold cold --jobs 30
measure logs logs --lines 200
measure submit submit --jobs 5000 --clients 1,8,64
measure recovery-10k recovery --events 10000 --rounds 5
measure recovery-100k recovery --events 100000 --rounds 5
measure recovery recovery --events 1000000 --rounds 5
measure footprint footprint --agents 1000,10000
alone planner planner
alone kueue-baseline kueue --shape baseline
alone kueue-large-scale kueue --shape large-scale
alone trace trace
echo "figures as JSON: $results/"
