"""Functions in processes of their own: they share no interpreter with the engine, and have limits.

Columns go to a process and come back through shared memory, in Arrow's IPC format, by pyarrow: a file of
``/dev/shm`` that the reader maps and removes, so that what it has mapped stays as it is. A function that exceeds its
time, or a process that dies, fails the query; the next call begins with a new process.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Isolated", "Limits"]

#: How long a process may take to begin, in seconds.
_START_S = 60.0
#: Rows that are worth a message of their own.
_ROWS_MIN = 1024


class Limits(NamedTuple):
    """What a function in processes may use."""

    processes: int
    #: Seconds for the rows that it is given at once; None for any.
    seconds: float | None
    #: Bytes that its process may allocate; None for any.
    memory: int | None


class _Function(NamedTuple):
    """What a process needs to know of a function."""

    name: str
    function: bytes
    by_rows: bool
    #: Which arguments are never None, row by row.
    strict: list[bool]
    #: Whether hints of a vector are of Polars, pyarrow, NumPy or pandas, for each argument.
    kinds: list[str]
    memory: int | None
    path: list[str]


class Isolated:
    """A function that runs in processes; it is called as it would be here."""

    def __init__(
        self, name: str, function: Callable[..., Any], by_rows: bool, kinds: Sequence[str], strict: Sequence[bool],
        limits: Limits,
    ) -> None:
        self._name = name
        self._limits = limits
        self._of = _Function(
            name, _packed(name, function), by_rows, list(strict), list(kinds), limits.memory, list(sys.path)
        )
        self._processes: list[_Process] = []
        self._end = weakref.finalize(self, _end_all, self._processes)

    def __call__(self, *arrays: Any) -> Any:
        """Called by one lane at a time for a batch."""
        import pyarrow

        columns = [pyarrow.array(array) for array in arrays]
        rows = len(columns[0]) if columns else 0
        count = max(1, min(self._limits.processes, rows // _ROWS_MIN))
        while len(self._processes) < count:
            self._processes.append(_Process(self._of))
        ends = [rows * number // count for number in range(count + 1)]
        used = self._processes[:count]
        try:
            for process, begin, end in zip(used, ends, ends[1:]):
                process.give([column.slice(begin, end - begin) for column in columns])
            results = [process.take(self._limits.seconds) for process in used]
        except BaseException:
            # Others may be in the middle of an answer that nobody waits for.
            _end_all(self._processes)
            raise
        if isinstance(results[0], list):
            return [value for result in results for value in result]
        return results[0] if count == 1 else pyarrow.chunked_array(results)


def _end_all(processes: list[_Process]) -> None:
    for process in processes:
        process.end()
    processes.clear()


def _packed(name: str, function: Callable[..., Any]) -> bytes:
    """The function as a process finds it: by its module and name, or by value with cloudpickle."""
    module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module not in (None, "__main__") and "<" not in qualified:
        return pickle.dumps((module, qualified))
    try:
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TypeError(
            f"{name} is defined in a script or inside a function, where a process of its own cannot find it; "
            "put it into a module, or install cloudpickle"
        ) from None
    packed: bytes = cloudpickle.dumps(function)
    return packed


class _Process:
    """A process, and the two ends of what is shared with it."""

    def __init__(self, of: _Function) -> None:
        from multiprocessing import Pipe

        self._name = of.name
        ours, theirs = Pipe()
        descriptor = theirs.fileno()
        program = f"from thalweg.isolated import _serve; _serve({descriptor})"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], pass_fds=[descriptor], env=environment, stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._connection: Connection[Any, Any] = ours
        #: What was given last, which the process removes when it has it.
        self._given: str | None = None
        self._is_ready = False
        self._send(tuple(of))

    def give(self, columns: list[Any]) -> None:
        """Begins a call."""
        if not self._is_ready:
            # The time that a process takes to begin is not the function's.
            self._answer(_START_S)
            self._is_ready = True
        self._given = _write(columns)
        self._send(self._given)

    def take(self, seconds: float | None) -> Any:
        """The answer to the call that was begun."""
        return self._answer(seconds)

    def _answer(self, seconds: float | None) -> Any:
        if not self._connection.poll(seconds):
            raise TimeoutError(f"{self._name} took longer than {seconds:g} s for a batch, and was ended")
        try:
            kind, answer = self._connection.recv()
        except EOFError:
            status = self._process.wait()
            raise RuntimeError(f"the process of {self._name} has ended with status {status}") from None
        if kind == "failed":
            raise _exception(*answer)
        if kind != "array":
            return answer
        return _read(answer)[0]

    def end(self) -> None:
        """Ends the process: it leaves when nobody asks any more, or is made to."""
        self._connection.close()
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _remove(self._given)

    def _send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            status = self._process.wait()
            raise RuntimeError(f"the process of {self._name} has ended with status {status}") from None


def _write(columns: list[Any]) -> str:
    """Writes columns into shared memory; where."""
    import tempfile

    import pyarrow

    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    descriptor, path = tempfile.mkstemp(prefix="thalweg-", suffix=".arrow", dir=folder)
    os.close(descriptor)
    batch = pyarrow.record_batch(columns, [str(number) for number in range(len(columns))])
    try:
        with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    except BaseException:
        _remove(path)
        raise
    return path


def _read(path: str) -> list[Any]:
    """The columns in shared memory, which is removed: nobody else gets at it, and it goes with them."""
    import pyarrow

    try:
        mapped = pyarrow.memory_map(path, "r")
    finally:
        _remove(path)
    return list(pyarrow.ipc.open_stream(mapped).read_next_batch().columns)


def _remove(path: str | None) -> None:
    if path is not None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _exception(packed: bytes | None, text: str, place: str | None, trace: str) -> BaseException:
    try:
        exception: BaseException = pickle.loads(packed) if packed is not None else RuntimeError(text)
    except Exception:
        exception = RuntimeError(text)
    #: Where it was raised, for messages: the traceback stays in the process.
    exception._thalweg_place = place  # type: ignore[attr-defined]
    if sys.version_info >= (3, 11):
        exception.add_note("in a process of its own:\n" + trace)
    return exception


def _serve(descriptor: int) -> None:
    """What the process does: call by call, until nobody asks any more."""
    from multiprocessing.connection import Connection

    connection: Connection[Any, Any] = Connection(descriptor)
    answer: tuple[str, Any]
    of = _Function(*connection.recv())
    sys.path[:] = of.path
    try:
        import pyarrow  # noqa: F401

        function = _found(of.function)
        _limit(of.memory)
        connection.send(("ready", None))
    except BaseException as error:
        connection.send(("failed", _failure(error)))
        return
    while True:
        try:
            path = connection.recv()
        except EOFError:
            break
        try:
            returned = _called(of, function, _read(path))
            answer = ("values", returned) if isinstance(returned, list) else ("array", _write([returned]))
        except BaseException as error:
            answer = ("failed", _failure(error))
        try:
            connection.send(answer)
        except OSError:
            if answer[0] == "array":
                _remove(str(answer[1]))
            break


def _failure(error: BaseException) -> tuple[bytes | None, str, str | None, str]:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    text = f"{type(error).__name__}: {error}"
    try:
        packed = pickle.dumps(error)
    except Exception:
        packed = None
    return packed, text, place, "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _found(packed: bytes) -> Callable[..., Any]:
    found: Any = pickle.loads(packed)
    if isinstance(found, tuple):
        module, qualified = found
        found = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
        # The decorator has put its own in the place of the function.
        found = getattr(found, "_function", found)
    return found  # type: ignore[no-any-return]


def _limit(memory: int | None) -> None:
    """Bounds what the process can allocate beyond what it has now."""
    if memory is None:
        return
    import resource

    used = 0
    try:
        with open("/proc/self/status") as status:
            used = next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData")), 0)
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_DATA, (used + memory, resource.RLIM_INFINITY))


def _called(of: _Function, function: Callable[..., Any], columns: list[Any]) -> Any:
    """Calls it with whole columns, or for each row: a list of values then."""
    import pyarrow

    from .functions import _CONVERSIONS

    if of.by_rows:
        strict = [place for place, never in enumerate(of.strict) if never]
        rows = zip(*(column.to_pylist() for column in columns))
        return [None if any(row[place] is None for place in strict) else function(*row) for row in rows]
    returned = function(*(_CONVERSIONS[kind](column) for kind, column in zip(of.kinds, columns)))
    if isinstance(returned, pyarrow.Array):
        return returned
    if hasattr(returned, "__arrow_c_stream__"):
        returned = pyarrow.chunked_array(returned)
    elif not isinstance(returned, pyarrow.ChunkedArray):
        return pyarrow.array(returned)
    return returned.combine_chunks()
