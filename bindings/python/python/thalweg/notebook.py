"""Notebooks: the cell magic ``%%tw``, and results that are shown while they change.

    %load_ext thalweg

    %%tw
    SELECT page, COUNT(*) AS n FROM clicks GROUP BY page

A query that ends shows its rows. One that does not runs in the background, and its cell shows the newest rows until it is
stopped: by a button where anywidget is installed, else by ``stop()``. The kernel is free meanwhile.
"""

from __future__ import annotations

import argparse
import shlex
import threading
from collections import deque
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

from .connection import Connection, connect
from .errors import Error
from .jobs import Job

if TYPE_CHECKING:
    from .result import Result

__all__ = ["LiveJob", "LiveTable", "load"]

#: How often what is shown is shown again, in seconds.
_EVERY_S = 0.5
#: Rows that are shown.
_SHOWN_ROWS = 20
#: Rows of an updated result that are kept to show the newest of them.
_KEPT_ROWS = 100_000


class _Live:
    """Something that is shown again and again until it has ended."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._shows: Any = None

    def stop(self) -> None:
        """Ends it soon."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """``running``, or how it has ended."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end. False if ``timeout`` seconds pass first."""
        return self._ended.wait(timeout)

    def _ipython_display_(self) -> None:
        """Shows it in a notebook, with a button where anywidget is installed. A terminal shows it once."""
        import IPython.display

        if not hasattr(IPython.get_ipython(), "kernel"):
            print(repr(self))
            return
        page: Any = IPython.display  # It has no types.
        widget = _widget(self)
        if widget is not None:
            page.display(widget)
            show = widget.show
        else:
            first = {"text/html": self._repr_html_(), "text/plain": repr(self)}
            handle = page.display(first, raw=True, display_id=True)

            def show(html: str) -> None:
                handle.update(page.HTML(html))

        threading.Thread(target=self._refresh, args=(show,), name="thalweg-live", daemon=True).start()

    def _refresh(self, show: Any) -> None:
        shown = None
        while True:
            is_last = self._ended.wait(_EVERY_S)
            html = self._repr_html_()
            if html != shown:
                show(html)
                shown = html
            if is_last:
                return


class LiveTable(_Live):
    """The rows of a query that runs in the background: the newest of a result that only grows, the present ones
    of a result that is updated."""

    def __init__(self, result: Result, *, rows: int = _SHOWN_ROWS) -> None:
        super().__init__()
        self._result = result
        self._batches = result._query.batches(with_changes=True)
        self._limit = rows
        self._lock = threading.Lock()
        self._newest: deque[tuple[Any, ...]] = deque(maxlen=rows)
        self._present: dict[str, tuple[tuple[Any, ...], int]] | None = {} if result._query.has_updates else None
        self._seen = 0
        self._error: Error | None = None
        self._is_stopped = False
        threading.Thread(target=self._read, name="thalweg-live-rows", daemon=True).start()

    @property
    def state(self) -> str:
        if not self._ended.is_set():
            return "running"
        if self._error is not None:
            return "failed"
        return "stopped" if self._is_stopped else "finished"

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that are shown, the newest last."""
        with self._lock:
            if self._present is None:
                return list(self._newest)
            present = list(self._present.values())[-self._limit :]
        return [row for row, count in present for _ in range(count)][-self._limit :]

    def stop(self) -> None:
        self._is_stopped = True
        self._batches.close()

    def _read(self) -> None:
        try:
            for batch in self._batches:
                with self._lock:
                    self._seen += len(batch)
                    if self._present is None:
                        self._newest.extend(batch.slice(max(0, len(batch) - self._limit)).fetchall())
                    else:
                        self._change(batch.fetchall(), batch.kinds)
        except Error as error:
            self._error = error
        finally:
            self._ended.set()

    def _change(self, rows: list[tuple[Any, ...]], kinds: list[str]) -> None:
        present = self._present
        assert present is not None
        for row, kind in zip(rows, kinds):
            key = repr(row)  # Rows can hold lists, which are no keys.
            _, count = present.pop(key, (row, 0))
            count += 1 if kind in ("+I", "+U") else -1
            if count > 0:
                present[key] = (row, count)
        if len(present) > _KEPT_ROWS:
            self._batches.close()
            raise Error(
                f"the result has more than {_KEPT_ROWS:,} rows; add a LIMIT, or write it into a table by a job",
                kind="resource",
            )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in self._result.schema)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>" for row in self.rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        failure = f"<pre>{escape(str(self._error))}</pre>" if self._error is not None else ""
        return f"{table}<small>{self.state}, {self._seen:,} rows so far</small>{failure}"

    def __repr__(self) -> str:
        return f"<thalweg.notebook.LiveTable: {self.state}, {self._seen} rows so far>"


class LiveJob(_Live):
    """A job of this process, shown with the counters of its stages."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        #: The job.
        self.job: Job = job
        threading.Thread(target=self._await, name="thalweg-live-job", daemon=True).start()

    @property
    def state(self) -> str:
        return self.job.state

    def stop(self) -> None:
        self.job.stop()

    def _await(self) -> None:
        self.job._ended()
        self._ended.set()

    def _repr_html_(self) -> str:
        return self.job._repr_html_()

    def __repr__(self) -> str:
        return repr(self.job)


#: The page's side of the button: what Python calls `html` and `is_over` is shown, a click is a message.
_BUTTON = """
export default { render({ model, el }) {
  const body = document.createElement("div");
  const button = document.createElement("button");
  button.textContent = "stop";
  button.onclick = () => { button.disabled = true; model.send("stop"); };
  const show = () => { body.innerHTML = model.get("html"); button.hidden = model.get("is_over"); };
  model.on("change:html", show);
  model.on("change:is_over", show);
  show();
  el.append(button, body);
} };
"""


def _widget(live: _Live) -> Any:
    """Something with a button; None where anywidget is not installed."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None

    def show(widget: Any, html: str) -> None:
        with widget.hold_sync():
            widget.html = html
            widget.is_over = live._ended.is_set()

    members = {
        "_esm": _BUTTON,
        "html": traitlets.Unicode().tag(sync=True),
        "is_over": traitlets.Bool(False).tag(sync=True),
        "show": show,
    }
    widget: Any = type("LiveWidget", (anywidget.AnyWidget,), members)(html=live._repr_html_())
    widget.on_msg(lambda _widget, message, _buffers: live.stop() if message == "stop" else None)
    return widget


class _Options(argparse.ArgumentParser):
    """What stands behind ``%%tw``. A mistake is an exception, and does not end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}\n{self.format_usage().strip()}")


def _options() -> argparse.ArgumentParser:
    options = _Options(prog="%%tw", add_help=False)
    options.add_argument("--db", metavar="NAME", help="the connection that a variable holds")
    options.add_argument("--table", metavar="NAME", action="append", default=[], help="a variable that is a table")
    options.add_argument("--params", metavar="NAME", help="a dictionary with the values of ${name}")
    options.add_argument("--out", metavar="NAME", help="the variable that takes the result")
    options.add_argument("--job", metavar="JOB", help="runs INSERT statements as a job of this name")
    options.add_argument("--snapshots", metavar="FOLDER", help="where the job keeps snapshots")
    options.add_argument("--interval", metavar="TIME", help="how often it takes one")
    options.add_argument("--resume", action="store_true", help="the job resumes from its newest snapshot")
    return options


class _Magic:
    """``%%tw``, with the connection of its notebook."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._options = _options()
        self._own: Connection | None = None
        #: What runs for a cell: it ends when the cell is run again.
        self._running: dict[str, _Live] = {}

    def __call__(self, line: str, cell: str) -> object:
        try:
            given = self._options.parse_args(shlex.split(line))
            db = self._connection(given.db)
            tables = {name: self._variable(name) for name in given.table}
            params: Mapping[str, object] | None = None if given.params is None else self._variable(given.params)
            return self._kept(given.out, self._shown(db, cell, given, params, tables))
        except Error as error:
            # What is wrong stands in the message; the frames of this package say nothing.
            lines = [str(error)]
            error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
            raise

    def _connection(self, name: str | None) -> Any:
        if name is not None:
            return self._variable(name)
        if self._own is None:
            self._own = connect()
        return self._own

    def _variable(self, name: str) -> Any:
        if name not in self._shell.user_ns:
            raise NameError(f"there is no variable {name}")
        return self._shell.user_ns[name]

    def _shown(
        self, db: Any, cell: str, given: argparse.Namespace, params: Mapping[str, object] | None, tables: dict[str, Any]
    ) -> object:
        place = self._cell_id() or cell
        if place in self._running:
            self._running.pop(place).stop()
        if given.job is not None:
            how = {"snapshots": given.snapshots, "interval": given.interval, "resume": given.resume}
            job = db.start(given.job, cell, params=params, **how, **tables)
            return LiveJob(job) if isinstance(job, Job) else job  # A server shows its own.
        result = db.sql(cell, params, **tables)
        if not getattr(result, "is_bounded", True):
            self._running[place] = LiveTable(result)
            return self._running[place]
        return result if result.columns else None

    def _cell_id(self) -> str | None:
        """What the notebook calls the cell; None outside of a kernel, and of notebooks that do not say."""
        parent: Any = getattr(self._shell, "get_parent", dict)()
        found = parent.get("metadata", {}).get("cellId")
        return None if found is None else str(found)

    def _kept(self, name: str | None, shown: object) -> object:
        if name is not None:
            self._shell.user_ns[name] = shown
        return shown


def load(shell: Any) -> None:
    """Makes ``%%tw`` known to a notebook."""
    shell.register_magic_function(_Magic(shell), magic_kind="cell", magic_name="tw")
