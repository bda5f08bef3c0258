#!/bin/bash
# Starts a broker of Kafka, writes orders and payments, joins them, kills the job in the middle, and shows what was paid.
#
#   THALWEG  the program (thalweg, or the debug build)      WORK  a folder for all files (a temporary one)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thalweg=${THALWEG:-$(command -v thalweg || echo "$here/../../target/debug/thalweg")}
work=${WORK:-$(mktemp -d)}
service="$here/../../tests/services/kafka"
broker="$work/broker"

eval "$("$service" start "$broker")"
finish() { "$service" stop "$broker"; }
trap finish EXIT

topics="'connector' = 'kafka', 'properties.bootstrap.servers' = '$BOOTSTRAP'"
tool() { java -Xmx128m -cp "$KAFKA_JARS/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=error "$@" --bootstrap-server "$BOOTSTRAP"; }
for topic in orders payments paid-orders bad-orders; do
  tool org.apache.kafka.tools.TopicCommand --create --topic "$topic" --partitions 2 >/dev/null
done

# What a shop writes; one message is no order. Lines go to topics as they are.
cat >"$work/orders.txt" <<'X'
{"id": 1, "customer": "ann", "amount": 10.00, "at": "2026-03-01 10:00:00"}
{"id": 2, "customer": "bo", "amount": 5.25, "at": "2026-03-01 10:05:00"}
{"id": 3, "customer": "cy", "amount": "a lot", "at": "2026-03-01 10:06:00"}
{"id": 4, "customer": "ann", "amount": 7.50, "at": "2026-03-01 10:10:00"}
X
cat >"$work/payments.txt" <<'X'
{"order_id": 1, "method": "card", "paid_at": "2026-03-01 10:20:00"}
{"order_id": 2, "method": "cash", "paid_at": "2026-03-01 12:00:00"}
{"order_id": 4, "method": "card", "paid_at": "2026-03-01 10:11:00"}
X
for topic in orders payments; do
  cat >"$work/write-$topic.sql" <<X
CREATE TABLE lines (line STRING) WITH ('connector' = 'filesystem', 'path' = '$work/$topic.txt', 'format' = 'raw');
CREATE TABLE t (line STRING) WITH ($topics, 'topic' = '$topic', 'format' = 'raw');
INSERT INTO t SELECT line FROM lines;
X
  "$thalweg" run --allow-path "$work" "$work/write-$topic.sql" >>"$work/job.log" 2>&1
done

run_job() {
  exec "$thalweg" run --resume --allow-path "$work" --param "servers=$BOOTSTRAP" --param "work=$work" "$work/orders.sql" >>"$work/job.log" 2>&1
}
cp "$here/orders.sql" "$work/orders.sql"
run_job &
job=$!
sleep 0.3
kill -9 "$job" 2>/dev/null || true
wait "$job" 2>/dev/null || true
(run_job) || { tail -5 "$work/job.log" >&2; exit 1; }

show() {
  cat >"$work/show.sql" <<X
CREATE TABLE t (v STRING $2) WITH ($topics, 'topic' = '$1', 'format' = 'raw', 'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset', 'properties.isolation.level' = 'read_committed');
SELECT $3 FROM t;
X
  "$thalweg" run "$work/show.sql" | tail -n +2 | sort
}
echo "paid within an hour, each once:"
show paid-orders "" "v"
echo "no orders:"
show bad-orders ", h MAP<STRING, BYTES> METADATA FROM 'headers' VIRTUAL" "v, CAST(h['thalweg.reason'] AS STRING) AS reason"
