"""Compares builds of the program: their sizes, and how fast they run queries of NEXMark.

    python3 scripts/compare_programs.py NAME=PROGRAM NAME=PROGRAM... [--queries q1,q5] [--events N] [--rounds K]

The programs run in turn, so that what else the machine does weighs on all of them. Of the rounds the median counts. The first
program is what the others are compared with.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path


def rates(program, options):
    """Rows of a second of processor time for each query: other programs of the machine weigh less on it."""
    command = [program, "bench", "nexmark", "--queries", options.queries, "--events", str(options.events), "--json", "-"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    return {line["query"]: line["rows_in"] / line["processor_seconds"] for line in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--queries", default="q1,q3,q5,q7,q8,q9,q18")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    programs = [given.split("=", 1) for given in options.programs]
    for name, program in programs:
        print(f"{name}: {Path(program).stat().st_size / 1e6:.1f} MB")
    measured = {name: {} for name, _ in programs}
    for number in range(options.rounds):
        for name, program in programs if number % 2 == 0 else reversed(programs):
            for query, rate in rates(program, options).items():
                measured[name].setdefault(query, []).append(rate)
    first = programs[0][0]
    print("| query | " + " | ".join(f"{name}, M rows/s per core" for name, _ in programs) + " |")
    print("|---" * (1 + len(programs)) + "|")
    for query in measured[first]:
        base = statistics.median(measured[first][query])
        cells = []
        for name, _ in programs:
            rate = statistics.median(measured[name][query])
            cells.append(f"{rate / 1e6:.2f}" + ("" if name == first else f" ({(rate / base - 1) * 100:+.0f} %)"))
        print(f"| {query} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
