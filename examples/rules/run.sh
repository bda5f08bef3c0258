#!/bin/bash
# Starts a broker of Kafka, writes rules and events, applies the rules, kills the job in the middle, and shows the alarms.
# ../kafka.sh says by which variables it can be told to do otherwise.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../kafka.sh"

topics rules events alarms
# `check` holds for five minutes; `burst` is made stricter.
write rules <<'X'
{"rule": "burst", "kind": "pressure", "above": 9.0, "is_active": true, "ts": "2026-03-01 10:01:00"}
{"rule": "hot", "kind": "celsius", "above": 200.0, "is_active": true, "ts": "2026-03-01 10:04:00"}
{"rule": "check", "kind": "pressure", "above": 8.0, "is_active": true, "ts": "2026-03-01 10:05:00"}
{"rule": "check", "kind": "pressure", "above": 8.0, "is_active": false, "ts": "2026-03-01 10:10:00"}
{"rule": "burst", "kind": "pressure", "above": 8.8, "is_active": true, "ts": "2026-03-01 10:11:30"}
X
write events <<'X'
{"device": "pump-1", "kind": "pressure", "reading": 9.7, "ts": "2026-03-01 10:00:00"}
{"device": "pump-2", "kind": "pressure", "reading": 9.5, "ts": "2026-03-01 10:02:00"}
{"device": "oven-1", "kind": "celsius", "reading": 210.0, "ts": "2026-03-01 10:03:00"}
{"device": "pump-1", "kind": "pressure", "reading": 8.5, "ts": "2026-03-01 10:06:00"}
{"device": "oven-1", "kind": "celsius", "reading": 230.0, "ts": "2026-03-01 10:07:00"}
{"device": "pump-1", "kind": "pressure", "reading": 8.9, "ts": "2026-03-01 10:11:00"}
{"device": "pump-2", "kind": "pressure", "reading": 8.9, "ts": "2026-03-01 10:12:00"}
X
run_killed rules.sql

echo "alarms, each once:"
show alarms "" "v"
