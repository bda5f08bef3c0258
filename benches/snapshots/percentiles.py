#!/usr/bin/env python3
"""How long results take with a snapshot every second, beside how long they take without, as Jet's figure 13 shows it: Q5
with 10 s windows sliding by 10 ms at 500,000 and 5 million events per second, and 10 million groups with a million
updates per second. Each job with and without in turn, stopped after SECONDS. Prints the medians of REPEAT runs, also of
how long sources were held and of how long the cut took to get through, and draws the latencies.

    benches/snapshots/percentiles.py PLOT.svg [SECONDS [REPEAT [WORKLOAD...]]]
    benches/snapshots/percentiles.py benches/results/snapshots-latency.svg 240 3

Needs target/release/thalweg (or $THALWEG), and a machine on which nothing else runs.
"""
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
THALWEG = os.environ.get("THALWEG", os.path.join(HERE, "../../target/release/thalweg"))
WORKLOADS = {
    "q5-500k": ("q5", 500_000, 10_000),
    "q5-5M": ("q5", 5_000_000, 10_000),
    "groups-10M": ("groups", 1_000_000, 10_000_000),
    "q5-unlimited": ("q5", "unlimited", 10_000),
}
SHOWN = ("q5-500k", "q5-5M", "groups-10M")
QUANTILES = ("p50", "p90", "p99", "p99.9", "p99.99")
MS = {"µs": 1e-3, "ms": 1.0, "s": 1e3}
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94")


def percentiles(text):
    """What a line says of each quantile, in ms."""
    found = re.findall(r"(p[\d.]+) ([\d.,]+) (µs|ms|s)\b", text)
    return {quantile: float(number.replace(",", "")) * MS[unit] for quantile, number, unit in found}


def run(workload, seconds, with_snapshots):
    """Latencies, holds and times of cuts of one run."""
    query, rate, keys = WORKLOADS[workload]
    with tempfile.TemporaryDirectory() as folder:
        command = [THALWEG, "run", f"{HERE}/{query}.sql", "--metrics", "--workers", "2", "--allow-path", folder]
        command += ["--param", f"rate={rate}", "--param", f"keys={keys}"]
        if with_snapshots:
            command += ["--set", f"execution.checkpointing.dir={folder}/state"]
            command += ["--set", "execution.checkpointing.interval=1s"]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(seconds)
        job.send_signal(signal.SIGINT)
        output, _ = job.communicate()
    lines = {line.split(":")[0]: line for line in output.splitlines()}
    if "result latency" not in lines:
        sys.exit(f"{workload}: no latencies\n{output}")
    of_cuts = re.search(r"; held (.*?); captured (.*)", lines.get("snapshots", ""))
    held, captured = of_cuts.groups() if of_cuts else ("", "")
    return percentiles(lines["result latency"]), percentiles(held), percentiles(captured)


def medians(runs):
    return {quantile: statistics.median(run[quantile] for run in runs) for quantile in runs[0]}


def plot(path, curves):
    """Latency by quantile, both in logarithms: each quantile is as far from the next as it is rarer."""
    width, height, left, bottom = 720, 420, 70, 50
    low, high = (f(value for _, curve in curves for value in curve.values()) for f in (min, max))
    from math import log10
    decades = (int(log10(low)) - 1, int(log10(high)) + 1)
    x = {quantile: left + place * (width - left - 200) / (len(QUANTILES) - 1) for place, quantile in enumerate(QUANTILES)}
    share = lambda ms: (log10(ms) - decades[0]) / (decades[1] - decades[0])
    y = lambda ms: height - bottom - share(ms) * (height - bottom - 20)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">']
    for decade in range(decades[0], decades[1] + 1):
        at = y(10**decade)
        parts.append(f'<line x1="{left}" x2="{width - 200}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10**decade:g} ms</text>')
    for quantile, at in x.items():
        parts.append(f'<text x="{at:.1f}" y="{height - bottom + 20}" text-anchor="middle">{quantile}</text>')
    for place, (name, curve) in enumerate(curves):
        colour, dash = COLOURS[place // 2 % len(COLOURS)], ' stroke-dasharray="5 4"' if place % 2 else ""
        points = " ".join(f"{x[quantile]:.1f},{y(curve[quantile]):.1f}" for quantile in QUANTILES)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        at = 30 + 20 * place
        parts.append(f'<line x1="{width - 190}" x2="{width - 160}" y1="{at - 4}" y2="{at - 4}" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{width - 152}" y="{at}">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join(parts + ["</svg>", ""]))


def main():
    path, arguments = sys.argv[1], sys.argv[2:]
    seconds, repeat = (int(value) for value in (arguments[:2] + ["240", "3"][len(arguments[:2]):]))
    curves = []
    for workload in arguments[2:] or SHOWN:
        runs = {False: [], True: []}
        for _ in range(repeat):
            for with_snapshots in (False, True):
                runs[with_snapshots].append(run(workload, seconds, with_snapshots))
        without, taken = (medians([latencies for latencies, _, _ in runs[which]]) for which in (False, True))
        curves += [(workload, without), (f"{workload}, snapshots", taken)]
        for name, of_all in (("without", without), ("with", taken)):
            print(f"{workload} {name}:", ", ".join(f"{quantile} {of_all[quantile]:.3g} ms" for quantile in QUANTILES))
        print(f"{workload} p99.99 with to without: {taken['p99.99'] / without['p99.99']:.2f}")
        for place, what in ((1, "sources held"), (2, "all captured after")):
            times = medians([one[place] for one in runs[True]])
            print(f"{workload} {what}:", ", ".join(f"{quantile} {ms:.3g} ms" for quantile, ms in times.items()), flush=True)
    plot(path, curves)


main()
