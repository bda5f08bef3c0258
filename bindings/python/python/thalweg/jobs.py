"""Jobs: INSERT statements that run in the background."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from . import _thalweg

if TYPE_CHECKING:
    import os

__all__ = ["Job", "StartsJobs", "Why"]

_Job = TypeVar("_Job")


class JobRequest(NamedTuple):
    """What ``start`` was called with."""

    name: str
    sql: str
    snapshots: str | os.PathLike[str] | None
    interval: str | None
    resume: bool | int
    drop_state: bool
    overwrite: bool
    params: Mapping[str, object] | None
    tables: Mapping[str, Any]


class StartsJobs(Generic[_Job]):
    """What starts jobs: the engine in this process, or a server."""

    def start(
        self,
        name: str,
        sql: str,
        /,
        *,
        snapshots: str | os.PathLike[str] | None = None,
        interval: str | None = None,
        resume: bool | int = False,
        drop_state: bool = False,
        overwrite: bool = False,
        params: Mapping[str, object] | None = None,
        **tables: Any,
    ) -> _Job:
        """Starts INSERT statements as a job in the background, and returns when it runs.

        A job takes snapshots every ``interval``: in this process into the folder ``snapshots``, if one is given;
        those of a server are where the server chooses. With ``resume`` it resumes from the newest one, or from the
        one of that number. ``drop_state`` lets state go that changed statements have no use for, ``overwrite``
        what an earlier run has written into its outputs. A job of the same name that runs is stopped first; a
        server keeps the statements as a new revision of it.
        """
        return self._start(
            JobRequest(name, sql, snapshots, interval, resume, drop_state, overwrite, params, tables)
        )

    def _start(self, request: JobRequest) -> _Job:
        raise NotImplementedError


class JobStart(NamedTuple):
    """How a job is started."""

    name: str
    sql: str
    settings: list[tuple[str, str]]
    resume: bool
    number: int | None
    params: dict[str, str] | None
    drop_state: bool
    overwrite: bool


class Why:
    """Why the results of a job are where they are. Its text is for people; ``facts`` for programs."""

    def __init__(self, text: str, facts: dict[str, Any]) -> None:
        self.text = text
        self.facts = facts

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<thalweg.Why: {self.facts.get('sentence', '')}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"


class Job:
    """A job; ``Connection.start`` starts it. As a context manager it is stopped at the end."""

    def __init__(self, inner: _thalweg.RunningJob) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """What it is called."""
        return self._inner.name

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``restarting``, ``stopping``, ``stopped``, ``finished`` or ``failed``."""
        return self._inner.state

    @property
    def notes(self) -> list[str]:
        """What was worth telling so far: restarts, restored snapshots."""
        return self._inner.notes

    def why(self) -> Why | None:
        """Which input holds results back, since when, and why. None before it runs."""
        found = self._inner.why()
        return None if found is None else Why(found[0], _parsed(found[1]))

    def metrics(self) -> dict[str, Any]:
        """All counters of the job, by stage."""
        return dict(_parsed(self._inner.metrics() or "{}"))

    def watermarks(self) -> dict[str, int | None]:
        """The watermark of each stage, in milliseconds since 1970; None where there is none yet."""
        return {stage["name"]: stage.get("watermark") for stage in self.metrics().get("stages", [])}

    def tap(self, table: str | None = None, *, where: str | None = None, limit: int = 100) -> Iterator[dict[str, Any]]:
        """Rows as they pass from now on: what ``table`` gives, else what the outputs take. Ends with the job, or
        after ``limit`` rows. The job is not slowed; what comes too fast is left out."""
        return _tapped(self._inner.tap(table, where), limit)

    def stop(self) -> None:
        """Asks it to stop: a job with snapshots takes a last one. Returns at once."""
        self._inner.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end, and raises what it has failed with. False if ``timeout`` seconds pass first."""
        return self._inner.wait(timeout)

    def _ended(self) -> None:
        """Waits for the end, however it ends."""
        from .errors import Error

        try:
            self.wait()
        except Error:
            pass

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None:
            self.wait()
        else:
            self._ended()

    def __repr__(self) -> str:
        return f"<thalweg.Job {self.name}: {self.state}>"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(stage['name'])}</td><td>{stage.get('counters', {}).get('rows_in', '')}</td>"
            f"<td>{stage.get('counters', {}).get('rows_out', '')}</td></tr>"
            for stage in self.metrics().get("stages", [])
        )
        head = "<tr><th>stage</th><th>rows in</th><th>rows out</th></tr>"
        return f"<b>{escape(self.name)}</b>: {self.state}<table>{head}{rows}</table>"


def _tapped(tap: _thalweg.JobTap, limit: int) -> Iterator[dict[str, Any]]:
    while (rows := tap.take()) is not None:
        for row in rows[:limit]:
            yield _parsed(row)
        limit -= len(rows)
        if limit <= 0:
            return


def _parsed(text: str) -> Any:
    import json  # When it is needed: many programs start no job.

    return json.loads(text)
