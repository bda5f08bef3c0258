"""Measures the package and engines that people use from Python on the same rows, in one run.

    python compare.py [--rows 1000000] [--repeat 3] [--broker 127.0.0.1:9092] [--workloads words,join] [ENGINE …]

Prints a JSON line for each measurement. Each one has a process of its own, which makes its rows before the clock
starts, so that memory and start-up of one engine do not weigh on another; engines take turns, and the median counts.
An engine that is not installed is left out, with a line that says so; Quix Streams also where there is no broker.
`checksum` is the same for all that ran a workload. `lines` are those of the program, of its imports none.

| workload | what it computes | kind |
|---|---|---|
| words | the running count of each word, every update emitted | stream |
| windows | the sum per key and minute of event time | stream |
| join | orders and payments of the same number within a minute, both out of order | stream |
| batch-windows | the sums of windows where the whole table is there | batch |
| udf | x * 1.19 + 1 over 8 Ki rows at a time: SQL, a function over columns, a function for each row | functions |
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import resource
import statistics
import subprocess
import sys
from typing import Any

KEYS = 1_000
#: How far rows of a join are from their place, at most.
DISORDER_ROWS = 1_000
#: The first moment, in microseconds since 1970, and the time from one row to the next.
START_US, STEP_US = 1_767_225_600_000_000, 1_000

#: Engines by what has to be installed: a module, and its workloads by the names of its functions.
ENGINES: dict[str, tuple[str, str]] = {
    "thalweg": ("thalweg", "engines.on_thalweg"),
    "bytewax": ("bytewax", "engines.on_bytewax"),
    "pathway": ("pathway", "engines.on_pathway"),
    "quix": ("quixstreams", "engines.on_quix"),
    "polars": ("polars", "engines.on_tables"),
    "duckdb": ("duckdb", "engines.on_tables"),
}
#: For each workload, engines and their functions; what follows a space is another way of the same engine.
WORKLOADS: dict[str, dict[str, str]] = {
    "words": dict.fromkeys(("thalweg", "bytewax", "pathway", "quix"), "words"),
    "windows": dict.fromkeys(("thalweg", "bytewax", "pathway", "quix"), "windows"),
    "join": dict.fromkeys(("thalweg", "bytewax", "pathway", "quix"), "join"),
    "batch-windows": {"thalweg": "windows", "polars": "polars_windows", "duckdb": "duckdb_windows"},
    "udf": {
        "thalweg sql": "function sql",
        "thalweg columns": "function over_columns",
        "thalweg rows": "function by_row",
    },
}


def rows_of(workload: str, count: int) -> Any:
    """What a workload reads, the same for every engine: a table, or the two sides of a join, `count` rows in all."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(7)
    if workload == "join":
        return [joined_side(count // 2, np.random.default_rng(seed)) for seed in (7, 8)]
    keys = random.zipf(1.3, count) % KEYS
    return pa.table(
        {
            "ts": pa.array(START_US + np.arange(count) * STEP_US, pa.timestamp("us")),
            "k": pa.array(keys, pa.int64()),
            "word": pa.array([f"word-{key}" for key in keys.tolist()], pa.string_view()),
            "x": pa.array(random.integers(0, 1_000, count), pa.int64()),
            "f": pa.array(random.random(count), pa.float64()),
        }
    )


def joined_side(count: int, random: Any) -> Any:
    """Each number once, up to `DISORDER_ROWS` away from its place."""
    import numpy as np
    import pyarrow as pa

    numbers = np.argsort(np.arange(count) + random.integers(0, DISORDER_ROWS, count), kind="stable")
    return pa.table(
        {
            "ts": pa.array(START_US + numbers * STEP_US, pa.timestamp("us")),
            "order_id": pa.array(numbers, pa.int64()),
            "x": pa.array(random.integers(0, 1_000, count), pa.int64()),
        }
    )


def lines_of(function: Any) -> int:
    """Lines of a program that are not blank and no comments, with those of what it calls."""
    lines = [line.strip() for line in inspect.getsource(function).splitlines()]
    own = sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)
    return own + sum(map(lines_of, getattr(function, "also_counts", ())))


def measure(workload: str, engine: str, count: int) -> None:
    """In a process of its own: one measurement as a line."""
    module = importlib.import_module(ENGINES[engine.split()[0]][1])
    name, *arguments = WORKLOADS[workload][engine].split()
    function = getattr(module, name)
    run = function(*arguments) if arguments else function
    seconds, checksum = run(rows_of(workload, count))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = {"seconds": seconds, "checksum": checksum, "peak_mb": round(peak_kb / 1024), "lines": lines_of(function)}
    print(json.dumps(line), flush=True)
    # Threads of engines that serve others need not end by themselves.
    os._exit(0)


def asked(workload: str, engine: str, count: int) -> dict[str, Any] | None:
    command = [sys.executable, __file__, "--measure", workload, engine, "--rows", str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{workload}, {engine}: failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def missing(engine: str) -> str | None:
    """Why an engine cannot run."""
    if importlib.util.find_spec(ENGINES[engine][0]) is None:
        return f"{ENGINES[engine][0]} is not installed"
    if engine == "quix" and "KAFKA_BROKER" not in os.environ:
        return "Quix Streams needs a broker: --broker, such as that of `tests/services/kafka start DIR`"
    return None


def compare(workload: str, names: list[str], rows: int, repeat: int) -> None:
    """Measures engines in turn, and prints a line for each."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        why = missing(name.split()[0])
        if why is None:
            runs[name] = []
        else:
            print(f"{workload}: {why}", file=sys.stderr)
    for _ in range(repeat):
        for name, lines in runs.items():
            line = asked(workload, name, rows)
            lines.extend([line] if line else [])
    for name, lines in runs.items():
        if not lines:
            continue
        rates = [rows / line["seconds"] for line in lines]
        figure = {
            "workload": workload,
            "engine": name,
            "rows": rows,
            "rows_per_second": round(statistics.median(rates)),
            "spread": [round(min(rates)), round(max(rates))],
            "peak_mb": max(line["peak_mb"] for line in lines),
            "lines": lines[0]["lines"],
            "checksum": lines[0]["checksum"],
        }
        print(json.dumps(figure), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("engines", nargs="*")
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--broker")
    arguments.add_argument("--workloads", default=",".join(WORKLOADS))
    arguments.add_argument("--measure", nargs=2)
    given = arguments.parse_args()
    if given.broker:
        os.environ["KAFKA_BROKER"] = given.broker
    if given.measure:
        return measure(*given.measure, given.rows)
    for workload in given.workloads.split(","):
        names = [name for name in WORKLOADS[workload] if not given.engines or name.split()[0] in given.engines]
        compare(workload, names, given.rows, given.repeat)


if __name__ == "__main__":
    main()
