#!/usr/bin/env python3
"""Times aggregates over a file in `thalweg run`, DuckDB and Polars, in turn, each run a process of its own.

    .venv/bin/pip install -r benches/ways-in/requirements.txt
    .venv/bin/python benches/ways-in/ways_in.py FOLDER --thalweg target/release/thalweg

FOLDER takes the data (made once, the same for the same number of rows) and what the runs leave. Several
builds are told apart by names: `--thalweg new=… --thalweg old=…`. All engines use as many threads as
`--threads` says. Each run prints a line of JSON, and a table of medians and ratios comes at the end:
how many times faster the first build is than the faster of DuckDB and Polars, by processor time and by
the clock. A result that differs from DuckDB's stops everything.

Of Thalweg the whole process counts, from its start to its end; of DuckDB and Polars the query alone, without
starting Python and loading the library.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

# name, type in Thalweg, type in DuckDB, how it is made from the row's number i and a random number r(i, salt)
COLUMNS = [
    ("id", "BIGINT", "BIGINT", "i"),
    ("ts", "TIMESTAMP(3)", "TIMESTAMP",
     "strftime(make_timestamp((1767225600000000 + i * 10800 + r(i, 1) % 600000000)::BIGINT), '%Y-%m-%d %H:%M:%S.%g')"),
    ("carrier", "STRING", "VARCHAR", "chr(65 + (r(i, 2) % 7)::INT) || chr(65 + (r(i, 3) % 3)::INT)"),
    ("origin", "STRING", "VARCHAR",
     "chr(65 + (r(i, 4) % 20)::INT) || chr(65 + (r(i, 5) % 20)::INT) || 'X'"),
    ("flight", "INT", "INTEGER", "r(i, 6) % 10000"),
    ("customer", "BIGINT", "BIGINT", "1000000000 + r(i, 7) % 1000000"),
    ("delay", "BIGINT", "BIGINT",
     "CASE WHEN r(i, 8) % 50 = 0 THEN NULL ELSE (r(i, 9) % 300)::BIGINT - 60 END"),
    ("distance", "INT", "INTEGER", "50 + r(i, 10) % 4000"),
    ("price", "DOUBLE", "DOUBLE", "(r(i, 11) % 100000) / 100.0"),
    ("note", "STRING", "VARCHAR", "'seat ' || (r(i, 12) % 60) || ' of row ' || (r(i, 13) % 40)"),
]

BY = "COUNT(*) AS n, SUM(delay) AS delays, MIN(distance) AS nearest, MAX(distance) AS farthest"

# name -> (text for Thalweg and DuckDB; where they differ, both). {customers} is a bound that few customers reach.
QUERIES = {
    "total": f"SELECT {BY} FROM flights",
    "carriers": f"SELECT carrier, {BY} FROM flights GROUP BY carrier",
    "prices": "SELECT carrier, COUNT(*) AS n, SUM(delay) AS delays, AVG(price) AS mean FROM flights GROUP BY carrier",
    "flights": f"SELECT flight, {BY} FROM flights GROUP BY flight",
    "routes": f"SELECT carrier, origin, {BY} FROM flights GROUP BY carrier, origin",
    "customers": f"SELECT customer, {BY} FROM flights GROUP BY customer HAVING COUNT(*) >= {{customers}}",
    "hourly": (
        f"SELECT window_start, carrier, {BY} FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end, carrier",
        f"SELECT date_trunc('hour', ts) AS window_start, carrier, {BY} FROM flights GROUP BY 1, 2",
    ),
}


def bound(rows):
    """So many flights few customers have."""
    mean = rows / 1e6
    return int(mean + 4.5 * math.sqrt(mean)) + 1


def text_of(name, dialect, rows):
    """The text of a query in a dialect: 0 Thalweg, 1 DuckDB."""
    text = QUERIES[name]
    text = text if isinstance(text, str) else text[dialect]
    return text.replace("{customers}", str(bound(rows)))


def make_data(folder, rows):
    """Writes the table as CSV and as Parquet, unless it is there."""
    import duckdb

    files = {kind: folder / f"flights-{rows}.{kind}" for kind in ("csv", "parquet")}
    if all(file.exists() for file in files.values()):
        return files
    connection = duckdb.connect()
    connection.execute("CREATE MACRO r(i, salt) AS hash(i * 64 + salt)")
    for kind, file in files.items():
        # CSV has its own text of times; Parquet has types.
        types = ["VARCHAR" if kind == "csv" else of for _, _, of, _ in COLUMNS]
        made = [f"({made})::{of} AS {name}" for (name, _, _, made), of in zip(COLUMNS, types)]
        source = f"FROM (SELECT range AS i FROM range({rows}))"
        options = "HEADER" if kind == "csv" else "FORMAT parquet, ROW_GROUP_SIZE 122880"
        partial = file.with_suffix(".partial")
        connection.execute(f"COPY (SELECT {', '.join(made)} {source}) TO '{partial}' ({options})")
        partial.rename(file)
    return files


# The engines.

def thalweg_statements(name, kind, file, rows):
    """A file of statements."""
    columns = ", ".join(f"{column} {of}" for column, of, _, _ in COLUMNS)
    options = {"connector": "filesystem", "format": kind, "path": str(file)}
    if kind == "csv":
        options |= {"csv.header": "true", "csv.null-literal": ""}
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    query = text_of(name, 0, rows)
    return (
        "SET 'execution.runtime-mode' = 'batch';\n"
        f"CREATE TABLE flights ({columns}) WITH ({given});\n{query};\n"
    )


def run_thalweg(binary, work, answer, threads):
    """Runs the program; wall and processor seconds of the process."""
    statements = work.with_suffix(".sql")
    command = [binary, "run", "-q", "--format", "csv", "--workers", str(threads), str(statements)]
    with open(answer, "wb") as out:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(command, stdout=out, check=True)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def run_python(engine, query, kind, file, answer, threads, rows):
    """Runs a query in a process of its own, which tells what it took."""
    command = [sys.executable, __file__, "--child", engine, query, kind, str(file), str(answer), str(threads), str(rows)]
    environment = os.environ | {"POLARS_MAX_THREADS": str(threads)}
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    told = json.loads(told.stdout)
    return told["wall_s"], told["cpu_s"]


def child(engine, query, kind, file, answer, threads, rows):
    """In the process of a Python engine: answers, and tells how long that took."""
    run = {"duckdb": answer_by_duckdb, "polars": answer_by_polars}[engine](threads)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    run(query, kind, file, answer, rows)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"wall_s": wall, "cpu_s": cpu}))


def answer_by_duckdb(threads):
    """DuckDB, told the types of the columns."""
    import duckdb

    connection = duckdb.connect(config={"threads": threads})

    def run(query, kind, file, answer, rows):
        types = ", ".join(f"'{column}': '{of}'" for column, _, of, _ in COLUMNS)
        source = {
            "csv": f"read_csv('{file}', header = true, auto_detect = false, delim = ',', quote = '\"', columns = {{{types}}})",
            "parquet": f"read_parquet('{file}')",
        }[kind]
        text = text_of(query, 1, rows).replace("FROM flights", f"FROM {source}")
        connection.execute(f"COPY ({text}) TO '{answer}' (HEADER)")

    return run


def answer_by_polars(_threads):
    """Polars' streaming engine, told the types of the columns."""
    import polars as pl

    types = {"BIGINT": pl.Int64, "INTEGER": pl.Int32, "DOUBLE": pl.Float64, "VARCHAR": pl.String, "TIMESTAMP": pl.String}
    by = [
        pl.len().alias("n"),
        pl.col("delay").sum().alias("delays"),
        pl.col("distance").min().alias("nearest"),
        pl.col("distance").max().alias("farthest"),
    ]

    def run(query, kind, file, answer, rows):
        if kind == "csv":
            table = pl.scan_csv(file, schema={column: types[of] for column, _, of, _ in COLUMNS})
        else:
            table = pl.scan_parquet(file)
        if query == "total":
            result = table.select(by)
        elif query == "prices":
            result = table.group_by("carrier").agg(by[0], by[1], pl.col("price").mean().alias("mean"))
        elif query == "routes":
            result = table.group_by("carrier", "origin").agg(by)
        elif query == "customers":
            result = table.group_by("customer").agg(by).filter(pl.col("n") >= bound(rows))
        elif query == "hourly":
            ts = pl.col("ts")
            ts = ts.str.to_datetime("%Y-%m-%d %H:%M:%S%.3f", time_unit="ms") if kind == "csv" else ts
            table = table.with_columns(ts.dt.truncate("1h").alias("window_start"))
            result = table.group_by("window_start", "carrier").agg(by)
        else:
            result = table.group_by({"carriers": "carrier", "flights": "flight"}[query]).agg(by)
        result.collect(engine="streaming").write_csv(answer)

    return run


# Comparing.

def value(text):
    """A field as it compares: numbers rounded, times without what follows the second."""
    try:
        return float(f"{float(text):.9g}")
    except ValueError:
        return text.replace("T", " ")[:19]


def rows_of(answer):
    """The rows of an answer, sorted."""
    with open(answer, newline="", encoding="utf-8") as file:
        return sorted(([value(field) for field in row] for row in list(csv.reader(file))[1:]), key=repr)


def first_row_s(command):
    """From the start of a process to the first byte that it prints."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.read(1)
        took = time.perf_counter() - began
        process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"failed: {command}")
    return took


def cold_starts(folder, builds, repeat):
    """Lines of JSON: how long it takes to answer over a file of one row."""
    one = folder / "one.csv"
    one.write_text("1\n")
    table = f"CREATE TABLE t (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{one}');"
    duckdb = f"import duckdb\nprint(duckdb.sql(\"SELECT column0 FROM read_csv('{one}', header = false)\").fetchall())"
    polars = f"import polars\nprint(polars.scan_csv('{one}', has_header=False).collect())"
    commands = {name: [binary, "run", "-q", "--format", "csv", "--allow-path", str(folder), "-e", f"{table} SELECT n FROM t;"] for name, binary in builds.items()}
    commands |= {name: [sys.executable, "-c", text] for name, text in {"duckdb": duckdb, "polars": polars}.items()}
    for name, command in commands.items():
        took = [first_row_s(command) for _ in range(repeat + 1)][1:]
        size = {"binary_bytes": os.path.getsize(builds[name])} if name in builds else {}
        print(json.dumps({"measured": "first row", "engine": name, "median_s": statistics.median(took)} | size), flush=True)


def measure(arguments, builds):
    """Runs everything in turn; seconds by (format, query, engine)."""
    folder = arguments.folder
    files = make_data(folder, arguments.rows)
    taken = {}
    for kind in arguments.formats.split(","):
        for query in arguments.only.split(","):
            work = folder / f"{query}-{kind}"
            work.with_suffix(".sql").write_text(thalweg_statements(query, kind, files[kind], arguments.rows))
            for number in range(arguments.repeat):
                expected = None
                for engine in ["duckdb", *builds, *arguments.peers]:
                    answer = work.with_suffix(f".{engine}.csv")
                    if engine in builds:
                        wall, cpu = run_thalweg(builds[engine], work, answer, arguments.threads)
                    else:
                        wall, cpu = run_python(engine, query, kind, files[kind], answer, arguments.threads, arguments.rows)
                    rows = rows_of(answer)
                    expected = rows if expected is None else expected
                    if rows != expected:
                        raise SystemExit(f"{query} over {kind}: {engine} answers otherwise than DuckDB: {answer}")
                    taken.setdefault((kind, query, engine), []).append((cpu, wall))
                    print(json.dumps({"format": kind, "query": query, "engine": engine, "run": number, "cpu_s": round(cpu, 3), "wall_s": round(wall, 3)}), flush=True)
    return taken


def table(taken, builds, peers):
    """Medians and ratios."""
    engines = ["duckdb", *peers, *builds]
    first = next(iter(builds))
    print("\n| format | query |" + "".join(f" {engine} CPU s (wall) |" for engine in engines) + f" {first}, of the faster, by CPU | by wall |")
    print("|---|---|" + "---|" * (len(engines) + 2))
    for kind, query in dict.fromkeys((kind, query) for kind, query, _ in taken):
        medians = {
            engine: [statistics.median(run[i] for run in taken[kind, query, engine]) for i in (0, 1)]
            for engine in engines
        }
        cells = "".join(f" {cpu:.2f} ({wall:.2f}) |" for cpu, wall in medians.values())
        ratios = [min(medians[engine][i] for engine in ["duckdb", *peers]) / medians[first][i] for i in (0, 1)]
        print(f"| {kind} | {query} |{cells} **{ratios[0]:.2f}** | {ratios[1]:.2f} |")


def main():
    """Reads the command line."""
    if sys.argv[1:2] == ["--child"]:
        engine, query, kind, file, answer, threads, rows = sys.argv[2:]
        child(engine, query, kind, file, answer, int(threads), int(rows))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--thalweg", action="append", required=True, metavar="[NAME=]PROGRAM")
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default=",".join(QUERIES), help="queries, with commas between them")
    parser.add_argument("--formats", default="csv,parquet")
    parser.add_argument("--without-polars", action="store_true")
    arguments = parser.parse_args()
    if arguments.rows < 500_000:
        parser.error("with fewer rows than 500,000 a flight may have no delay at all, of which Polars says that it is 0")
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    arguments.peers = [] if arguments.without_polars else ["polars"]
    builds = [told.split("=", 1) if "=" in told else ["thalweg", told] for told in arguments.thalweg]
    builds = {name: str(pathlib.Path(program).resolve()) for name, program in builds}
    cold_starts(arguments.folder, builds, arguments.repeat)
    table(measure(arguments, builds), builds, arguments.peers)


if __name__ == "__main__":
    main()
