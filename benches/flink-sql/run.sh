#!/usr/bin/env bash
# run.sh query=FILE folder=FOLDER workers=N [flink.setting=value …]
#
# JAVA names another JVM than the one in the path, JVM_OPTIONS replaces the size of its memory. Flink keeps its collector, G1.
set -e
here="$(cd "$(dirname "$0")" && pwd)"
memory="${JVM_OPTIONS:--Xms9g -Xmx9g -XX:+AlwaysPreTouch}"
# Flink's own flags for Java 17, from its config.yaml, as far as these queries need them.
opens="--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED
  --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.util.concurrent=ALL-UNNAMED
  --add-opens=java.base/java.time=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
# Both are lists of words.
# shellcheck disable=SC2086
exec "${JAVA:-java}" $memory $opens -cp "$here/target/classes:$here/target/lib/*" thalweg.flinksql.Main "$@"
