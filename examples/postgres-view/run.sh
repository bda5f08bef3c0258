#!/bin/bash
# Starts a server of PostgreSQL, keeps a view in it up to date, kills the job in the middle, and shows the view.
#
#   THALWEG  the program (thalweg, or the debug build)      WORK  a folder for all files (a temporary one)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
thalweg=${THALWEG:-$(command -v thalweg || echo "$here/../../target/debug/thalweg")}
work=${WORK:-$(mktemp -d)}
server="$here/../../tests/services/postgres"
database="$work/database"

eval "$("$server" start "$database")"
job=
finish() {
  # A shell starts what is in the background without Ctrl-C.
  [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true
  [ -z "$job" ] || wait "$job" 2>/dev/null || true
  "$server" stop "$database"
}
trap finish EXIT
sql() { psql -XqAt -v ON_ERROR_STOP=1 -h "$PGSOCKET" -p "$PGPORT" -U thalweg -d postgres -c "$1"; }
start_job() {
  THALWEG_SECRET_POSTGRES=thalweg "$thalweg" run --resume --allow-path "$work" --param "port=$PGPORT" --param "work=$work" \
    "$here/view.sql" >>"$work/job.log" 2>&1 &
  job=$!
}
# until QUERY is ANSWER, for a minute at most
until_is() {
  local i answer
  for ((i = 0; i < 600; i++)); do
    answer=$(sql "$1")
    [ "$answer" != "$2" ] || return 0
    sleep 0.1
  done
  echo "$1: $answer instead of $2" >&2
  tail -5 "$work/job.log" >&2
  exit 1
}

sql "CREATE TABLE customers (id int PRIMARY KEY, name text, level text); ALTER TABLE customers REPLICA IDENTITY FULL;
     INSERT INTO customers VALUES (3, 'ann', 'gold'), (7, 'cy', 'gold'), (9, 'bo', 'none');
     CREATE TABLE spending (customer int PRIMARY KEY, name text, level text, spent numeric)"
mkdir -p "$work/orders"
printf '3,10.00\n7,5.25\n' >"$work/orders/1.csv"

start_job
until_is "SELECT count(*) FROM spending" 2
echo "the view at first:"
sql "SELECT * FROM spending ORDER BY 1"

kill -9 "$job"
wait "$job" 2>/dev/null || true
sql "UPDATE customers SET level = 'silver' WHERE id = 7; DELETE FROM customers WHERE id = 3"
printf '7,4.50\n9,1.00\n' >"$work/orders/2.csv"

start_job
until_is "SELECT string_agg(customer || ' ' || spent, ',' ORDER BY customer) FROM spending" "7 9.75,9 1.00"
echo "after a kill, a change of level, a customer who has gone, and two orders:"
sql "SELECT * FROM spending ORDER BY 1"
