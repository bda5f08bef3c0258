"""Connections to a server: the methods of a connection in process, over its REST interface."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from . import _thalweg
from .errors import DataError, Error, SqlError, StateError
from .jobs import JobRequest, StartsJobs, Why
from .literals import literals

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["RemoteConnection", "RemoteJob", "RemoteResult"]

#: How often a job is looked at while it is waited for, in seconds.
_LOOK_EVERY_S = 0.1
#: How long a request may take, in seconds; the server answers sooner where it can.
_TIMEOUT_S = 60.0
#: Rows that an answer has at most.
_ROWS_MAX = 1_000_000

_RESTING = ("stopped", "finished", "failed", "undecided", "draft")


class RemoteConnection(StartsJobs["RemoteJob"]):
    """A server that runs; :func:`connect` makes it of a URL.

    Declarations are kept here and sent along with queries and jobs. Tables, functions and sinks of this process
    cannot be used: the server does not reach them.
    """

    def __init__(self, url: str, token: str | None, settings: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server; write it as http://127.0.0.1:7373")
        self.url: str = url.rstrip("/")
        self._token = token
        self._settings = dict(settings)
        self._declared: list[str] = []

    def sql(self, query: str, /, params: Mapping[str, object] | None = None, **tables: Any) -> RemoteResult:
        """Keeps declarations, and returns the result of the query that stands last.

        The query runs when its rows are asked for.
        """
        _refuse_objects(tables)
        filled, before, is_query = _thalweg.split_query(query, literals(params))
        if before:
            self._declare(before)
        if not is_query:
            return RemoteResult(self, None, None)
        body = {"sql": "".join([*self._declared, filled[len(before) :]])}
        self._validate(body)
        return RemoteResult(self, body, filled)

    def _start(self, request: JobRequest) -> RemoteJob:
        _refuse_objects(request.tables)
        if request.snapshots is not None:
            raise ValueError("the server chooses where snapshots of its jobs are; leave snapshots= out")
        settings = dict(self._settings)
        if request.interval is not None:
            settings["execution.checkpointing.interval"] = request.interval
        job = RemoteJob(self, request.name)
        known = self._request("GET", job._path, missing=None)
        if known is not None and known["state"] not in _RESTING:
            job.stop()
            job._rest(None)
        sql = request.sql
        body: dict[str, Any] = {"sql": "".join([*self._declared, sql]), "settings": settings, "desired": "stopped"}
        if request.params is not None:
            body["params"] = literals(request.params)
        query = "?approve=drop-state" if request.drop_state else ""
        self._request("PUT", job._path + query, body, sql=sql)
        begin: Any = "newest" if request.resume is True else "nothing"
        if not isinstance(request.resume, bool):
            begin = {"snapshot": request.resume}
        start = {"from": begin, "drop_state": request.drop_state, "overwrite": request.overwrite}
        self._request("POST", f"{job._path}/start", start, sql=sql, wait_s=30)
        job._begun()
        return job

    def job(self, name: str) -> RemoteJob:
        """The job of this name."""
        self._request("GET", f"/v1/jobs/{quote(name, safe='')}")
        return RemoteJob(self, name)

    @property
    def jobs(self) -> list[RemoteJob]:
        """The jobs of the server."""
        found: list[RemoteJob] = []
        query = ""
        while True:
            page: dict[str, Any] = self._request("GET", "/v1/jobs" + query)
            found += [RemoteJob(self, item["name"]) for item in page["items"]]
            if page.get("next") is None:
                return found
            query = "?" + urlencode({"after": page["next"]})

    def register(self, name: str, table: Any) -> None:
        """Refused: a server does not reach objects of this process."""
        _refuse_objects({name: table})

    register_sink = register

    def register_function(self, function: Any, name: str | None = None) -> None:
        """Refused: a server does not reach functions of this process."""
        _refuse_objects({name or str(getattr(function, "name", function)): function})

    def register_process(self, name: str, process: Any, relation: str, *, key: str) -> None:
        """Refused: a server does not reach functions of this process."""
        _refuse_objects({name: process})

    def close(self) -> None:
        """Does nothing: jobs of a server go on."""

    def __enter__(self) -> RemoteConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<thalweg.RemoteConnection to {self.url}>"

    def _declare(self, text: str) -> None:
        answer = self._validate({"sql": "".join([*self._declared, text])})
        if answer["jobs"]:
            raise SqlError(
                "a statement that writes is a job of the server; start it: db.start(name, sql)",
                kind="plan",
                sql=text,
            )
        self._declared.append(text if text.rstrip().endswith(";") else text + ";\n")

    def _validate(self, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._request("POST", "/v1/validate", body, sql=body["sql"])
        if not answer["is_valid"]:
            raise _of_diagnostics(answer["diagnostics"], body["sql"])
        return answer

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sql: str = "",
        wait_s: int | None = None,
        **missing: Any,
    ) -> Any:
        """What the server answers. ``missing=…`` is the answer where there is no such thing."""
        from urllib.error import HTTPError, URLError
        from urllib.request import urlopen

        try:
            with urlopen(self._asked(method, path, body, wait_s), timeout=_TIMEOUT_S) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except HTTPError as error:
            with error:
                if error.code == 404 and "missing" in missing:
                    return missing["missing"]
                raise _of_answer(error.code, error.read(), sql) from None
        except URLError as error:
            raise Error(f"no server answers at {self.url}: {error.reason}", kind="io") from error

    def _asked(self, method: str, path: str, body: Any = None, wait_s: int | None = None) -> Any:
        from urllib.request import Request

        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        return Request(self.url + path, data=data, headers=headers, method=method)


class RemoteResult:
    """The result of a query of a server, which runs each time that its rows are asked for."""

    def __init__(self, connection: RemoteConnection, body: dict[str, Any] | None, sql: str | None) -> None:
        self._connection = connection
        self._body = body
        self._sql = sql or ""

    def _answer(self, limit: int = _ROWS_MAX) -> dict[str, Any]:
        if self._body is None:
            return {"columns": [], "rows": [], "is_cut": False}
        body = {**self._body, "limit": limit, "timeout": _TIMEOUT_S / 2}
        answer: dict[str, Any] = self._connection._request("POST", "/v1/query", body, sql=self._sql)
        return answer

    @property
    def schema(self) -> list[tuple[str, str]]:
        """The names and SQL types of the columns."""
        return [(column["name"], column["kind"]) for column in self._answer(1)["columns"]]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.schema]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The whole result as tuples. Raises where the server has cut it off, by number or time."""
        answer = self._answer()
        if answer["is_cut"]:
            raise Error(
                "the server has cut the result off; add a LIMIT, or write it into a table by a job", kind="resource"
            )
        return list(_rows(answer))

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, or None."""
        return next(_rows(self._answer(1)), None)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples."""
        return iter(self.fetchall())

    def pl(self) -> polars.DataFrame:
        """The whole result as a data frame of Polars."""
        import polars

        answer = self._answer()
        names = [column["name"] for column in answer["columns"]]
        return polars.DataFrame(list(_rows(answer)), schema=names, orient="row")

    def arrow(self) -> pyarrow.Table:
        """The whole result as a table of pyarrow."""
        import pyarrow

        answer = self._answer()
        names = [column["name"] for column in answer["columns"]]
        rows = [dict(zip(names, row)) for row in _rows(answer)]
        return pyarrow.Table.from_pylist(rows) if rows else pyarrow.table({name: [] for name in names})

    def df(self) -> pandas.DataFrame:
        """The whole result as a data frame of pandas."""
        frame: pandas.DataFrame = self.arrow().to_pandas()
        return frame

    def explain(self) -> str:
        """How the query would run."""
        if self._body is None:
            return "the statement was executed"
        answer = self._connection._request("POST", "/v1/explain", self._body, sql=self._sql)
        return "\n".join(answer["text"])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self.rows()

    def __repr__(self) -> str:
        return f"<thalweg.RemoteResult of {self._connection.url}>"


class RemoteJob:
    """A job of a server. As a context manager it is stopped at the end."""

    def __init__(self, connection: RemoteConnection, name: str) -> None:
        self._connection = connection
        self._path = f"/v1/jobs/{quote(name, safe='')}"
        #: What it is called.
        self.name: str = name

    def _now(self) -> dict[str, Any]:
        now: dict[str, Any] = self._connection._request("GET", self._path)
        return now

    @property
    def state(self) -> str:
        """``planning``, ``starting``, ``running``, ``paused``, ``restarting``, ``stopping``, ``stopped``,
        ``finished``, ``failed``, ``undecided`` or ``draft``."""
        return str(self._now()["state"])

    @property
    def notes(self) -> list[str]:
        """What the job has said: restarts, restored snapshots."""
        lines = self._connection._request("GET", f"{self._path}/logs")
        return [str(line.get("text", line.get("message", ""))) for line in lines["items"]]

    def why(self) -> Why | None:
        """Which input holds results back, since when, and why. None while it does not run."""
        found = self._reading("why")
        return None if found is None else Why(found["text"], found["why"])

    def metrics(self) -> dict[str, Any]:
        """All counters of the job, by stage; empty while it does not run."""
        found = self._reading("graph")
        return {} if found is None else dict(found["reading"])

    def _reading(self, what: str) -> Any:
        """None where there is none: the job does not run, or has just begun."""
        try:
            return self._connection._request("GET", f"{self._path}/{what}", missing=None)
        except Error as error:
            if error.kind != "not-running":
                raise
            return None

    def watermarks(self) -> dict[str, int | None]:
        """The watermark of each stage, in milliseconds since 1970; None where there is none yet."""
        return {stage["name"]: stage.get("watermark") for stage in self.metrics().get("stages", [])}

    def snapshots(self) -> list[int]:
        """The numbers of its snapshots, newest first."""
        found = self._connection._request("GET", f"{self._path}/snapshots")
        return [snapshot["number"] for snapshot in found["items"]]

    def tap(self, table: str | None = None, *, where: str | None = None, limit: int = 100) -> Iterator[dict[str, Any]]:
        """Rows of the job as they pass: what ``table`` gives, else what its outputs take. The job is not slowed;
        what comes too fast is left out."""
        from urllib.request import urlopen

        wanted: dict[str, Any] = {"table": table, "where": where, "limit": limit}
        query = urlencode({key: value for key, value in wanted.items() if value is not None})
        request = self._connection._asked("GET", f"{self._path}/tail?{query}")
        request.add_header("Accept", "application/x-ndjson")
        with urlopen(request) as lines:
            for line in lines:
                text = line.strip()
                message = json.loads(text) if text.startswith(b"{") else {}
                row = message.get("row", message if message.get("event") == "row" else None)
                if row is not None:
                    yield row

    def stop(self) -> None:
        """Asks it to stop, with a last snapshot. Returns at once."""
        self._connection._request("POST", f"{self._path}/stop", {"how": "snapshot"})

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end, and raises what it has failed with. False if ``timeout`` seconds pass first."""
        now = self._rest(timeout)
        if now is None:
            return False
        self._check(now)
        return True

    def _rest(self, timeout: float | None) -> dict[str, Any] | None:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            now = self._now()
            if now["state"] in _RESTING:
                return now
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(_LOOK_EVERY_S)

    def _begun(self) -> None:
        """Waits until it runs, or has ended; raises what it has failed with."""
        while (now := self._now())["state"] in ("planning", "starting"):
            time.sleep(_LOOK_EVERY_S)
        self._check(now)

    def _check(self, now: dict[str, Any]) -> None:
        outcome = now.get("outcome") or {}
        if now["state"] == "undecided":
            raise StateError(
                f"job {self.name}: its snapshot holds state that the statements have no use for; "
                "start it with drop_state=True to let that state go",
                kind="plan",
            )
        if now["state"] == "failed":
            raise _of_problem(outcome.get("problem") or {"detail": f"job {self.name} has failed"}, "")

    def __enter__(self) -> RemoteJob:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        now = self._rest(None)
        if kind is None and now is not None:
            self._check(now)

    def __repr__(self) -> str:
        return f"<thalweg.RemoteJob {self.name}: {self.state}>"


def _refuse_objects(objects: Mapping[str, Any]) -> None:
    for name in objects:
        raise TypeError(
            f"{name} is an object of this process, which a server does not reach; declare a table with a connector, "
            "or use tw.connect() without a URL"
        )


def _rows(answer: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    columns = [(column["name"], _conversion(column["kind"])) for column in answer["columns"]]
    for row in answer["rows"]:
        yield tuple(None if row.get(name) is None else convert(row[name]) for name, convert in columns)


def _conversion(kind: str) -> Any:
    """What makes a value of Python of one of JSON."""
    if kind.startswith("TIMESTAMP"):
        return lambda text: datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    if kind.startswith("DATE"):
        return lambda text: datetime.date.fromisoformat(text)
    if kind.startswith("TIME"):
        return lambda text: datetime.time.fromisoformat(text)
    if kind.startswith("DECIMAL"):
        return lambda number: decimal.Decimal(str(number))
    if kind.startswith(("BYTES", "BINARY", "VARBINARY")):
        return lambda text: base64.b64decode(text)
    return lambda value: value


def _of_answer(status: int, body: bytes, sql: str) -> Error:
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    problem.setdefault("detail", f"the server answered {status}")
    return _of_problem(problem, sql)


def _of_problem(problem: dict[str, Any], sql: str) -> Error:
    if problem.get("diagnostics"):
        return _of_diagnostics(problem["diagnostics"], sql, problem.get("fault", "statement"))
    return _class(problem.get("fault", ""))(problem["detail"], kind=problem.get("code", ""), sql=sql)


def _of_diagnostics(diagnostics: list[dict[str, Any]], sql: str, fault: str = "statement") -> Error:
    worst = next((found for found in diagnostics if found["severity"] == "error"), diagnostics[0])
    start = (worst.get("span") or {}).get("start") or {}
    message = worst["message"]
    place = f" (line {start['line']}, column {start['column']})" if start else ""
    advice = f"\nhelp: {worst['help']}" if worst.get("help") else ""
    return _class(fault)(
        message + place + advice,
        message=message,
        kind=worst.get("code", ""),
        line=start.get("line"),
        column=start.get("column"),
        help=worst.get("help"),
        sql=sql,
    )


def _class(fault: str) -> type[Error]:
    return {"statement": SqlError, "data": DataError}.get(fault, Error)
