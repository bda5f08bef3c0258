#!/bin/bash
# Starts a broker of MQTT, publishes readings of three devices, averages them, kills the job in the middle, and shows what came out.
#
#   THALWEG  the program (thalweg, or the debug build)      WORK  a folder for all files (a temporary one)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thalweg=${THALWEG:-$(command -v thalweg || echo "$here/../../target/debug/thalweg")}
work=${WORK:-$(mktemp -d)}
service="$here/../../tests/services/mosquitto"
mkdir -p "$work"

eval "$("$service" start "$work/broker")"
job=
finish() {
  # A shell starts what is in the background without Ctrl-C.
  [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true
  [ -z "$job" ] || wait "$job" 2>/dev/null || true
  "$service" stop "$work/broker"
}
trap finish EXIT
client() { "$1" -h 127.0.0.1 -p "$MQTT_PORT" -V 5 -q 1 -u thalweg -P thalweg "${@:2}"; }
publish() { client mosquitto_pub -t plants/north/readings -l; }
start_job() {
  THALWEG_SECRET_MQTT=thalweg "$thalweg" run --resume --allow-path "$work" --param "port=$MQTT_PORT" --param "work=$work" \
    "$here/readings.sql" >>"$work/job.log" 2>&1 &
  job=$!
}
# shown FOLDER: the rows of all files that are visible, sorted.
shown() { { find "$work/$1" -name 'part-*' -exec cat {} + 2>/dev/null || true; } | sort; }
# until_rows FOLDER COUNT: waits for a minute at most.
until_rows() {
  local i rows
  for ((i = 0; i < 600; i++)); do
    rows=$(shown "$1" | wc -l)
    [ "$rows" -lt "$2" ] || return 0
    sleep 0.1
  done
  echo "$1: $rows rows instead of $2" >&2
  tail -5 "$work/job.log" >&2
  exit 1
}

# The session of the job, as its first start would make it: from now on the broker keeps what the job has not acknowledged.
client mosquitto_sub -c -x 3600 -i averages -t 'plants/+/readings' -E
publish <<'X'
{"device": "d1", "celsius": 20.0, "measured": "2026-03-01 10:00:01", "received": "2026-03-01 10:00:02"}
{"device": "d2", "celsius": 30.0, "measured": "2027-01-01 00:00:00", "received": "2026-03-01 10:00:05"}
{"device": "d3", "celsius": 25.0, "measured": "2026-03-01 10:00:08", "received": "2026-03-01 10:00:09"}
{"device": "d1", "celsius": 22.0, "measured": "2026-03-01 10:00:31", "received": "2026-03-01 10:00:32"}
{"device": "d2", "celsius": 31.0, "measured": "2027-01-01 00:00:30", "received": "2026-03-01 10:00:35"}
{"device": "d3", "celsius": 26.0, "measured": "1970-01-01 00:00:20", "received": "2026-03-01 10:00:39"}
{"device": "d1", "celsius": 24.0, "measured": "2026-03-01 10:01:01", "received": "2026-03-01 10:01:02"}
X
start_job
until_rows quarantine 2
kill -9 "$job"
wait "$job" 2>/dev/null || true

# The clock of d2 was set, that of d3 has recovered.
publish <<'X'
{"device": "d2", "celsius": 32.0, "measured": "2026-03-01 10:01:04", "received": "2026-03-01 10:01:05"}
{"device": "d3", "celsius": 27.0, "measured": "2026-03-01 10:01:08", "received": "2026-03-01 10:01:09"}
{"device": "d2", "celsius": 33.0, "measured": "2026-03-01 10:01:34", "received": "2026-03-01 10:01:35"}
{"device": "d3", "celsius": 28.0, "measured": "2026-03-01 10:01:38", "received": "2026-03-01 10:01:39"}
{"device": "d2", "celsius": 34.0, "measured": "2026-03-01 10:02:04", "received": "2026-03-01 10:02:05"}
{"device": "d3", "celsius": 29.0, "measured": "2026-03-01 10:02:08", "received": "2026-03-01 10:02:09"}
{"device": "d1", "celsius": 26.0, "measured": "2026-03-01 10:09:00", "received": "2026-03-01 10:09:01"}
X
start_job
until_rows quarantine 7
until_rows averages 5
echo "averages of devices whose clocks are right, each once:"
shown averages
echo "in quarantine, each once:"
shown quarantine
echo "clocks that are wrong:"
client mosquitto_sub -t 'clocks/+' -C 2 -W 10 -F '%t %p' | sort
