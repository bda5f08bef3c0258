#!/usr/bin/env python3
"""What a server of Prometheus makes of a scrape with native histograms.

Serves the recorded scrapes as `thalweg serve` does (scrape.pb to who prefers Protocol Buffers, else scrape.txt), has
a server of Prometheus read them, and asks that server what it has understood.

    deploy/prometheus/native_test.py PROMETHEUS
"""

import http.server
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).parent
PROTOBUF = "application/vnd.google.protobuf"
PATIENCE_S = 60


class Scrape(http.server.BaseHTTPRequestHandler):
    """Answers with the form that is asked for first."""

    kinds = set()

    def do_GET(self):
        accept = self.headers.get("accept", "")
        is_protobuf = accept.lstrip().startswith(PROTOBUF)
        body = (HERE / ("scrape.pb" if is_protobuf else "scrape.txt")).read_bytes()
        kind = (
            f"{PROTOBUF}; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            if is_protobuf
            else "text/plain; version=0.0.4; charset=utf-8"
        )
        self.kinds.add(is_protobuf)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def is_at_least(program, wanted):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"version (\d+)\.(\d+)", text.stdout + text.stderr)
    return tuple(map(int, found.groups())) >= wanted


def ask(port, query):
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]["result"]


def series_of(text):
    """Series of the text form that are no part of a histogram, with their values."""
    histograms = re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if not line.startswith(tuple(f"{name}_" for name in histograms))]


def check(port):
    latency = ask(port, "thalweg_result_latency_seconds")
    if not latency:
        return False
    for one in latency:
        assert "histogram" in one, f"no native histogram: {one}"
        found = one["histogram"][1]
        assert (found["count"], float(found["sum"])) == ("3", 0.00525), found
        ends = [float(bucket[2]) for bucket in found["buckets"]]
        assert ends[0] < 1e-6, f"a time of zero is in the bucket for zero: {ends}"
        assert 0.25e-3 <= ends[1] <= 0.25e-3 * 2 ** (1 / 8), ends
        assert 5e-3 <= ends[2] <= 5e-3 * 2 ** (1 / 8), ends
    worst = ask(port, "histogram_quantile(1, thalweg_result_latency_seconds)")
    assert all(5e-3 <= float(one["value"][1]) <= 5.5e-3 for one in worst) and worst, worst
    text = (HERE / "scrape.txt").read_text()
    wanted = len(series_of(text))
    numbers = sum(
        int(ask(port, f'count({{__name__=~"{name}"}})')[0]["value"][1])
        for name in {re.split(r"[{ ]", line)[0] for line in series_of(text)}
    )
    assert numbers == wanted, f"{numbers} series of {wanted}"
    return True


def main():
    program = sys.argv[1]
    scraped = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scrape)
    threading.Thread(target=scraped.serve_forever, daemon=True).start()
    port = free_port()
    is_stable = is_at_least(program, (3, 8))
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(
            "scrape_configs:\n- job_name: thalweg\n  scrape_interval: 1s\n"
            + ("  scrape_native_histograms: true\n" if is_stable else "")
            + f"  static_configs: [{{targets: ['127.0.0.1:{scraped.server_address[1]}']}}]\n"
        )
        feature = [] if is_stable else ["--enable-feature=native-histograms"]
        log = (pathlib.Path(folder) / "log").open("w+")
        server = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
            + [f"--web.listen-address=127.0.0.1:{port}", *feature],
            stdout=log,
            stderr=log,
        )
        try:
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    if check(port):
                        break
                except OSError:
                    assert server.poll() is None, "Prometheus has ended"
                assert time.monotonic() < until, "Prometheus has read no scrape"
                time.sleep(0.5)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
            raise
        finally:
            server.terminate()
            server.wait()
    assert True in Scrape.kinds, "Prometheus asks for text"
    print("Prometheus reads native histograms, and all other series as in the text")


if __name__ == "__main__":
    main()
