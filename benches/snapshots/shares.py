#!/usr/bin/env python3
"""What snapshots cost by the share of keys that change between two of them: the same job without snapshots, with
full ones and with incremental ones, in turn, by one program or several. Prints medians of the time of the run, of the
processor time of the process, and how many snapshots were kept.

    benches/snapshots/shares.py RATE KEYS CHANGING ROWS REPEAT PROGRAM...
    benches/snapshots/shares.py unlimited 2000000 2000000 60000000 5 target/release/thalweg
    benches/snapshots/shares.py 5000000 2000000 20000 50000000 5 target/release/thalweg
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ("none", "full", "incremental")


def run(program, mode, rate, keys, changing, rows):
    folder = tempfile.mkdtemp()
    command = [program, "run", os.path.join(HERE, "shares.sql"), "--metrics", "--workers", "2", "--allow-path", folder]
    for name, value in (("rate", rate), ("keys", keys), ("changing", changing), ("rows", rows)):
        command += ["--param", f"{name}={value}"]
    if mode != "none":
        incremental = "true" if mode == "incremental" else "false"
        for name, value in (("dir", f"{folder}/state"), ("interval", "1 s"), ("incremental", incremental)):
            command += ["--set", f"execution.checkpointing.{name}={value}"]
    before = os.times()
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = time.monotonic() - begun
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    kept = re.search(r"^snapshots: (\d+) kept", done.stdout + done.stderr, re.M)
    shutil.rmtree(folder)
    return wall, processor, int(kept.group(1)) if kept else 0


def main():
    rate, keys, changing, rows, repeat, *programs = sys.argv[1:]
    results = {}
    for _ in range(int(repeat)):
        for mode in MODES:
            for program in programs:
                result = run(os.path.abspath(program), mode, rate, keys, changing, rows)
                results.setdefault((program, mode), []).append(result)
    print(f"rate {rate}, {keys} keys, {changing} change, {rows} rows; medians (all) of {repeat}")
    for (program, mode), found in results.items():
        walls, processors, kept = ([of[i] for of in found] for i in range(3))
        shown = ", ".join(f"{wall:.2f}" for wall in walls)
        print(
            f"{os.path.basename(program)} {mode}: {statistics.median(walls):.2f} s ({shown}), "
            f"{statistics.median(processors):.2f} s of processor time, {statistics.median(kept):.0f} snapshots"
        )


if __name__ == "__main__":
    main()
