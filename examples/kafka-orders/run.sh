#!/bin/bash
# Starts a broker of Kafka, writes orders and payments, joins them, kills the job in the middle, and shows what was paid.
# ../kafka.sh says by which variables it can be told to do otherwise.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../kafka.sh"

topics orders payments paid-orders bad-orders
# What a shop writes; one message is no order.
write orders <<'X'
{"id": 1, "customer": "ann", "amount": 10.00, "at": "2026-03-01 10:00:00"}
{"id": 2, "customer": "bo", "amount": 5.25, "at": "2026-03-01 10:05:00"}
{"id": 3, "customer": "cy", "amount": "a lot", "at": "2026-03-01 10:06:00"}
{"id": 4, "customer": "ann", "amount": 7.50, "at": "2026-03-01 10:10:00"}
X
# Sorted by time: in which partition a message without a key lands is open, and one that is far behind another there is late.
write payments <<'X'
{"order_id": 4, "method": "card", "paid_at": "2026-03-01 10:11:00"}
{"order_id": 1, "method": "card", "paid_at": "2026-03-01 10:20:00"}
{"order_id": 2, "method": "cash", "paid_at": "2026-03-01 12:00:00"}
X
run_killed orders.sql

echo "paid within an hour, each once:"
show paid-orders "" "v"
echo "no orders:"
show bad-orders ", h MAP<STRING, BYTES> METADATA FROM 'headers' VIRTUAL" "v, CAST(h['thalweg.reason'] AS STRING) AS reason"
