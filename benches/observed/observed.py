#!/usr/bin/env python3
"""What it costs a server's jobs that somebody looks: the same jobs in turn with and without a page, a scrape each
second and a tap; or with a reader of the live stream that hardly reads.

    benches/observed/observed.py cost          one job of query 5 as fast as it can: rows per second of processor time
    benches/observed/observed.py jobs          a hundred jobs of query 5 at a fixed rate: latencies of results
    benches/observed/observed.py slow-reader   the same, with a reader that takes a byte a second

Latencies are those of all jobs together, from the buckets of their native histograms: a quantile is exact to a few
percent, and ratios of it are medians of pairs. Each run is a server of its own. Pairs alternate which comes first. A difference is real if all pairs agree.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
STATEMENTS = HERE.parent / "snapshots" / "q5.sql"
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
QUANTILES = {"50": 0.5, "99": 0.99, "999": 0.999, "9999": 0.9999}


def fields(message):
    """The fields of a message of Protocol Buffers: numbers with values, as they stand there."""
    at, size = 0, len(message)

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < size:
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = 8 if key & 7 == 1 else varint()
        yield key >> 3, message[at : at + length]
        at += length


def signed(value):
    """A number that was encoded so that small ones of either sign are short."""
    return value >> 1 ^ -(value & 1)


def varints(packed):
    """Numbers without field numbers between them."""
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def families(scrape):
    """The messages of a scrape, each of which has its length before it."""
    at = 0
    while at < len(scrape):
        end = next(place for place in range(at, len(scrape)) if scrape[place] < 0x80) + 1
        length = next(varints(scrape[at:end]))
        yield scrape[end : end + length]
        at = end + length


def latencies(scrape):
    """How many results of all jobs are in which bucket of the native histogram."""
    counts = {}
    for family in families(scrape):
        parts = list(fields(family))
        if (1, b"thalweg_result_latency_seconds") not in parts:
            continue
        for histogram in (value for number, one in parts if number == 4 for kind, value in fields(one) if kind == 7):
            found = list(fields(histogram))
            spans = [dict(fields(value)) for number, value in found if number == 12]
            deltas = [signed(value) for number, packed in found if number == 13 for value in varints(packed)]
            counts[None] = counts.get(None, 0) + next(value for number, value in found if number == 7)
            bucket, count, left = 0, 0, iter(deltas)
            for span in spans:
                bucket += signed(span[1])
                for _ in range(span[2]):
                    count += next(left)
                    counts[bucket] = counts.get(bucket, 0) + count
                    bucket += 1
    return counts


def quantile_us(counts, share):
    """The time below which this share lies, as if times lay evenly in their bucket (an eighth of a doubling)."""
    zeros = counts.get(None, 0)
    buckets = sorted((bucket, count) for bucket, count in counts.items() if bucket is not None and count > 0)
    wanted, below = share * (zeros + sum(count for _, count in buckets)), zeros
    for bucket, count in buckets:
        if below + count >= wanted:
            begin, end = 2 ** ((bucket - 1) / 8), 2 ** (bucket / 8)
            return (begin + (end - begin) * max(0.0, (wanted - below) / count)) * 1e6
        below += count
    return 0.0


class Server:
    """A server in a folder of its own."""

    def __init__(self, options):
        self.folder = tempfile.mkdtemp(prefix="thalweg-observed-")
        self.thalweg = options.thalweg
        command = [self.thalweg, "serve", "--listen", "127.0.0.1:0", "--data-dir", self.folder]
        command += ["-o", f"workers={options.workers}", "-o", "log.format=off", "-o", "admission.overcommit=100"]
        command += ["-o", "start.concurrency=16"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.address = ""
        for line in self.process.stderr:
            if line.startswith("listening at http://"):
                self.address = line.split("http://")[1].strip()
            if line.startswith("commands of this machine"):
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        token = [self.thalweg, "token", "create", "bench", "--role", "admin", "--data-dir", self.folder]
        self.token = subprocess.run(token, check=True, capture_output=True, text=True).stdout.strip()

    def connection(self):
        """A connection of its own."""
        return http.client.HTTPConnection(self.address, timeout=60)

    def request(self, connection, method, path, body=None, accept="application/json"):
        """Sends a request; the answer has not been read."""
        headers = {"authorization": f"Bearer {self.token}", "accept": accept}
        if body is not None:
            headers["content-type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {answer.read().decode()}")
        return answer

    def ask(self, method, path, body=None):
        """The answer to a request, as JSON."""
        connection = self.connection()
        text = self.request(connection, method, path, body).read()
        connection.close()
        return json.loads(text)

    def scrape(self):
        """All metrics, with native histograms."""
        connection = self.connection()
        scrape = self.request(connection, "GET", "/metrics", accept=PROTOBUF).read()
        connection.close()
        return scrape

    def processor_seconds(self):
        """What the process has used."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def seconds_outside_workers(self):
        """What threads have used that are not workers: requests, streams, listening."""
        used_ns = 0
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if not (thread / "comm").read_text().startswith("worker-"):
                used_ns += int((thread / "schedstat").read_text().split()[0])
        return used_ns / 1e9

    def memory_bytes(self):
        """What it has in memory."""
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def close(self):
        """Ends it without snapshots, and removes its folder."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Observers:
    """Those who look, until they are stopped."""

    def __init__(self, server, kind, job):
        self.server, self.job, self.seen = server, job, {}
        self.is_over = threading.Event()
        parts = {
            "none": [],
            "all": [self.page, self.stream, self.scrape, self.tap],
            "slow-reader": [self.slow_reader],
        }[kind]
        self.threads = [threading.Thread(target=self.guarded, args=[part], daemon=True) for part in parts]
        for thread in self.threads:
            thread.start()

    def guarded(self, part):
        """Whoever looks is cut off at the end."""
        try:
            part()
        except OSError:
            if not self.is_over.is_set():
                raise

    def count(self, what, bytes_read, seconds=0.0):
        """Adds to what was seen."""
        before = self.seen.get(what, {"times": 0, "bytes": 0, "slowest_ms": 0.0, "all_ms": 0.0})
        self.seen[what] = {
            "times": before["times"] + 1,
            "bytes": before["bytes"] + bytes_read,
            "slowest_ms": max(before["slowest_ms"], seconds * 1e3),
            "all_ms": before["all_ms"] + seconds * 1e3,
        }

    def each(self, seconds, requests):
        """Sends requests again and again over one connection."""
        connection = self.server.connection()
        while not self.is_over.wait(seconds):
            for name, path, accept in requests:
                begun = time.monotonic()
                body = self.server.request(connection, "GET", path, accept=accept).read()
                self.count(name, len(body), time.monotonic() - begun)

    def page(self):
        """What an open page asks for."""
        paths = [("graph", "graph"), ("why", "why"), ("history", "metrics?step=60")]
        self.each(1, [(name, f"/v1/jobs/{self.job}/{path}", "application/json") for name, path in paths])

    def scrape(self):
        """Prometheus, with native histograms."""
        self.each(1, [("scrape", "/metrics", PROTOBUF)])

    def lines(self, what, path):
        """Reads a stream line by line."""
        answer = self.server.request(self.server.connection(), "GET", path)
        while not self.is_over.is_set():
            line = answer.readline()
            if not line:
                return
            self.count(what, len(line))

    def stream(self):
        """The live stream of an open page."""
        self.lines("live", f"/v1/live?topics=jobs,job:{self.job}")

    def tap(self):
        """Rows of one job as they pass."""
        self.lines("tap", f"/v1/jobs/{self.job}/tail")

    def slow_reader(self):
        """Takes a byte a second of the live stream."""
        answer = self.server.request(self.server.connection(), "GET", f"/v1/live?topics=jobs,job:{self.job}")
        while not self.is_over.wait(1):
            self.count("slow", len(answer.read(1)))

    def stop(self):
        """Nobody looks any more."""
        self.is_over.set()


def submit(server, jobs, rate, options):
    """Makes jobs, and waits until all of them run."""
    for number in range(jobs):
        params = {"rate": str(rate), "keys": str(options.keys)}
        # Snapshots are measured elsewhere.
        settings = {"execution.checkpointing.interval": "1 d"}
        body = {"sql": STATEMENTS.read_text(), "params": params, "settings": settings, "desired": "running"}
        server.ask("PUT", f"/v1/jobs/q5-{number:03}", body)
    until = time.monotonic() + 300
    while True:
        states = [job["state"] for job in server.ask("GET", "/v1/jobs?limit=500")["items"]]
        if states.count("running") == jobs:
            return
        if "failed" in states or time.monotonic() > until:
            sys.exit(f"jobs do not run: {states}")
        time.sleep(0.5)


def rows_in(server):
    """Rows that all jobs have read."""
    return sum(job["rows_in"] for job in server.ask("GET", "/v1/jobs?limit=500")["items"])


def run(options, observers):
    """One server, one measurement."""
    server = Server(options)
    try:
        rate = "unlimited" if options.rate == 0 else max(1, options.rate // options.jobs)
        submit(server, options.jobs, rate, options)
        time.sleep(options.warm_up)
        observed = Observers(server, observers, f"q5-{random.randrange(options.jobs):03}")
        before = (rows_in(server), server.processor_seconds(), time.monotonic(), server.seconds_outside_workers())
        earlier = latencies(server.scrape())
        time.sleep(options.seconds)
        now = latencies(server.scrape())
        after = (rows_in(server), server.processor_seconds(), time.monotonic(), server.seconds_outside_workers())
        rows, processor_s, wall_s, outside_s = (one - other for one, other in zip(after, before))
        memory = server.memory_bytes()
        observed.stop()
        counts = {bucket: count - earlier.get(bucket, 0) for bucket, count in now.items()}
        return {
            "observers": observers,
            "rows_per_s": rows / wall_s,
            "rows_per_processor_s": rows / processor_s if processor_s else 0.0,
            "processors": processor_s / wall_s,
            "outside_workers": outside_s / processor_s if processor_s else 0.0,
            "memory_mib": memory / 2**20,
            "results": sum(counts.values()),
            **{f"p{name}_us": quantile_us(counts, share) for name, share in QUANTILES.items()},
            "seen": observed.seen,
        }
    finally:
        server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["cost", "jobs", "slow-reader"])
    parser.add_argument("--thalweg", default=str(HERE.parents[1] / "target/release/thalweg"))
    parser.add_argument("--seconds", type=float, help="of each run [default: 60; slow-reader 600]")
    parser.add_argument("--warm-up", type=float, default=15, help="seconds until a run is measured")
    parser.add_argument("--repeat", type=int, help="pairs [default: 7; slow-reader 2]")
    parser.add_argument("--jobs", type=int, help="[default: 1 of cost, else 100]")
    parser.add_argument("--rate", type=int, help="events a second of all jobs; 0: as fast as they can")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=0, help="0: one for each core")
    parser.add_argument("--results", help="a file that rows are appended to, as JSON")
    options = parser.parse_args()
    is_slow, is_cost = options.kind == "slow-reader", options.kind == "cost"
    options.seconds = options.seconds or (600 if is_slow else 60)
    options.repeat = options.repeat or (2 if is_slow else 7)
    options.jobs = options.jobs or (1 if is_cost else 100)
    options.rate = (0 if is_cost else 100_000) if options.rate is None else options.rate
    looked_at = "slow-reader" if is_slow else "all"
    numbers = ["rows_per_processor_s", "rows_per_s"] if is_cost else ["p9999_us", "p999_us", "p50_us", "rows_per_s"]
    pairs = []
    for number in range(options.repeat):
        order = ["none", looked_at] if number % 2 == 0 else [looked_at, "none"]
        found = {}
        for observers in order:
            row = run(options, observers)
            print(json.dumps(row), flush=True)
            if options.results:
                with open(options.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"kind": options.kind, "pair": number, **row}) + "\n")
            found[observers] = row
        pairs.append((found["none"], found[looked_at]))
    for name in numbers:
        ratios = [seen[name] / alone[name] for alone, seen in pairs if alone[name]]
        shown = " ".join(f"{ratio:.4f}" for ratio in ratios)
        print(f"{name}: looked at / not looked at = {statistics.median(ratios):.4f} (median of {shown})" if ratios else f"{name}: none")
    shares = [seen["outside_workers"] - alone["outside_workers"] for alone, seen in pairs]
    print(f"share of the server's processor time that looking takes, outside workers: {statistics.median(shares):.4%}")


if __name__ == "__main__":
    main()
