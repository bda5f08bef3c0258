#!/usr/bin/env bash
# How long results take with a snapshot every second, beside how long they take without: the same job in turn,
# stopped after so many seconds. Latencies count from the moment at which an event was due, so what a snapshot holds
# up is in them.
#
#   benches/snapshots/latency.sh QUERY RATE KEYS [SECONDS [REPEAT [WORKERS]]]
#   benches/snapshots/latency.sh q5 500000 10000
#   benches/snapshots/latency.sh q5 5000000 10000
#   benches/snapshots/latency.sh groups 1000000 10000000 30
#   benches/snapshots/latency.sh q5 unlimited 10000
#
# Needs target/release/thalweg (or $THALWEG), and a machine on which nothing else runs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thalweg=${THALWEG:-$here/../../target/release/thalweg}
query=$1 rate=$2 keys=$3 seconds=${4:-20} repeat=${5:-3} workers=${6:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run() { # NAME ARGUMENTS…
  local name=$1 job
  shift
  "$thalweg" run "$here/$query.sql" --metrics --workers "$workers" --param "rate=$rate" --param "keys=$keys" --allow-path "$folder" "$@" \
    >"$folder/out" 2>&1 &
  job=$!
  sleep "$seconds"
  kill -INT "$job" || true
  wait "$job" || true
  grep -E '^(result latency|snapshots)|error' "$folder/out" | sed "s/^/$name: /"
  # What went in, and in how long: the throughput where RATE is 'unlimited'.
  awk -v name="$name" '$1 == "bid" { rows = $2 } /run time/ { print name ": " rows " events, " $0 }' "$folder/out"
}

for _ in $(seq "$repeat"); do
  run "without snapshots"
  rm -rf "$folder/state"
  run "with snapshots" --set "execution.checkpointing.dir=$folder/state" --set execution.checkpointing.interval=1s
done
