#!/bin/bash
# Starts a broker of Kafka and a server with the protocol of S3, writes orders, brings them into a lake, kills the job in the middle,
# and shows what is in the lake. ../kafka.sh says by which variables it can be told to do otherwise.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../kafka.sh"
store="$here/../../tests/services/s3"
eval "$("$store" start "$work/store")"
at_exit "$store" stop "$work/store"
export THALWEG_SECRET_S3=s3cret
lake=(--param "s3=$ENDPOINT" --param lake=s3://thalweg)

topics lake-orders
# 4,000 orders of two days, a minute apart, in two shops.
for ((id = 1; id <= 4000; id++)); do
  minute=$(((id - 1) * 2880 / 4000))
  printf '{"id": %d, "shop": "%s", "amount": %d.50, "ts": "2026-03-%02d %02d:%02d:00"}\n' "$id" "$([ $((id % 3)) = 0 ] && echo east || echo west)" \
    $((id % 10)) $((1 + minute / 1440)) $((minute / 60 % 24)) $((minute % 60))
done | write lake-orders
run_killed lake.sql "${lake[@]}"

echo "in the lake:"
"$thalweg" run "${lake[@]}" "$here/show.sql"
echo "days that are complete:"
"$store" call "$work/store" "for found in client.list_objects_v2(Bucket='$BUCKET', Prefix='hours/')['Contents']:
  if found['Key'].endswith('_SUCCESS'): print(found['Key'])"
