# What the examples over Kafka share; sourced by their run.sh, which sets `here`.
#
#   THALWEG    the program (thalweg, or the debug build)      WORK  a folder for all files (a temporary one)
#   BOOTSTRAP  a broker that runs already, with its topics, unless KAFKA_JARS says where the tools are that make them; otherwise a
#              broker is started, and stopped in the end
set -euo pipefail
thalweg=${THALWEG:-$(command -v thalweg || echo "$here/../../target/debug/thalweg")}
work=${WORK:-$(mktemp -d)}
mkdir -p "$work"

# at_exit COMMAND…: what stops a server that was started.
stops=()
at_exit() { stops+=("$(printf '%q ' "$@")"); }
finish() { for stop in "${stops[@]}"; do eval "$stop"; done; }
trap finish EXIT

if [ -z "${BOOTSTRAP:-}" ]; then
  eval "$("$here/../../tests/services/kafka" start "$work/broker")"
  at_exit "$here/../../tests/services/kafka" stop "$work/broker"
fi
kafka="'connector' = 'kafka', 'properties.bootstrap.servers' = '$BOOTSTRAP'"

# topics NAME…: makes topics with two partitions each.
topics() {
  local topic
  [ -n "${KAFKA_JARS:-}" ] || return 0
  for topic in "$@"; do
    java -Xmx128m -XX:TieredStopAtLevel=1 -cp "$KAFKA_JARS/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
      org.apache.kafka.tools.TopicCommand --create --topic "$topic" --partitions 2 --bootstrap-server "$BOOTSTRAP" >/dev/null
  done
}

# write TOPIC: the lines of the input become messages, as they are.
write() {
  cat >"$work/$1.txt"
  cat >"$work/write-$1.sql" <<X
CREATE TABLE lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '$work/$1.txt', 'format' = 'raw');
CREATE TABLE t (line STRING) WITH ($kafka, 'topic' = '$1', 'format' = 'raw');
INSERT INTO t SELECT line FROM lines;
X
  "$thalweg" run --allow-path "$work" "$work/write-$1.sql" >>"$work/job.log" 2>&1
}

# run_job FILE OPTION…: runs a job to its end.
run_job() {
  "$thalweg" run --resume --allow-path "$work" --param "servers=$BOOTSTRAP" --param "work=$work" "${@:2}" "$work/$1" >>"$work/job.log" 2>&1 ||
    { tail -5 "$work/job.log" >&2; exit 1; }
}

# run_killed FILE OPTION…: runs a job, kills it after a moment, and runs it again to its end.
run_killed() {
  cp "$here/$1" "$work/$1"
  (exec "$thalweg" run --resume --allow-path "$work" --param "servers=$BOOTSTRAP" --param "work=$work" "${@:2}" "$work/$1") >>"$work/job.log" 2>&1 &
  sleep 0.3
  kill -9 $! 2>/dev/null || true
  wait $! 2>/dev/null || true
  run_job "$@"
}

# show TOPIC COLUMNS EXPRESSIONS: the committed messages of a topic, sorted.
show() {
  cat >"$work/show.sql" <<X
CREATE TABLE t (v STRING $2) WITH ($kafka, 'topic' = '$1', 'format' = 'raw', 'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset', 'properties.isolation.level' = 'read_committed');
SELECT $3 FROM t;
X
  "$thalweg" run "$work/show.sql" | tail -n +2 | sort
}
