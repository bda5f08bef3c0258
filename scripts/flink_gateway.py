"""Asks a running Apache Flink over the REST interface of its SQL gateway.

Only the standard library is needed. `Gateway(url)` opens a session; `gateway.run(statement)`
executes one statement and returns its rows, or raises `Refused` with the root cause.
"""

import json
import re
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

# Of sessions whose answers are compared: one order of rows, one zone.
PROPERTIES = {"parallelism.default": "1", "table.local-time-zone": "UTC"}


class Refused(Exception):
    """Flink refused or failed a statement: the message of the root cause."""


class Gateway:
    """A session of a SQL gateway."""

    def __init__(self, url, properties=None):
        self.url = url.rstrip("/")
        answer = self._ask("POST", "/v2/sessions", {"properties": properties or {}})
        self.session = answer["sessionHandle"]

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(root_cause(error.read().decode())) from None

    def run(self, statement, rows_at_most=1_000_000, deadline_s=300):
        """The column names and the rows, each a (kind, fields)."""
        answer = self._ask(
            "POST", f"/v2/sessions/{self.session}/statements", {"statement": statement}
        )
        operation = answer["operationHandle"]
        base = f"/v2/sessions/{self.session}/operations/{operation}"
        end = time.monotonic() + deadline_s
        columns, rows, token, pause = [], [], 0, 0.002
        try:
            while len(rows) < rows_at_most and time.monotonic() < end:
                page = self._ask("GET", f"{base}/result/{token}?rowFormat=PLAIN_TEXT")
                if page["resultType"] == "NOT_READY":
                    time.sleep(pause)
                    pause = min(pause * 1.5, 0.2)
                    continue
                results = page.get("results") or {}
                columns = results.get("columns") or columns
                rows += [(row["kind"], row["fields"]) for row in results.get("data") or []]
                if page["resultType"] == "EOS":
                    break
                token = int(page["nextResultUri"].split("?")[0].rsplit("/", 1)[1])
                if not results.get("data"):
                    time.sleep(pause)
            return columns, rows
        finally:
            try:
                self._ask("DELETE", f"{base}/close")
            except Refused:
                pass

    def refusal(self, statement):
        """Why Flink refuses this statement, or None."""
        try:
            self.run(statement)
            return None
        except Refused as refused:
            return str(refused)

    def close(self):
        """Ends the session."""
        self._ask("DELETE", f"/v2/sessions/{self.session}")


def root_cause(text):
    """The message of the innermost exception of an error answer."""
    try:
        errors = json.loads(text)["errors"]
    except (ValueError, KeyError):
        return text.strip()[:500]
    trace = errors[-1]
    causes = re.findall(r"^Caused by: (.*(?:\n(?!\s+at |Caused by|\s+\.\.\. ).*)*)", trace, re.M)
    message = causes[-1] if causes else errors[0]
    return message.strip()


def each_in_a_session(url, items, ask, threads=4):
    """`ask(gateway, item)` for each item, in order, over some sessions at the same time."""
    local = threading.local()

    def one(item):
        if not hasattr(local, "gateway"):
            local.gateway = Gateway(url)
        return ask(local.gateway, item)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, items))
