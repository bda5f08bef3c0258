"""A server in this process, which keeps jobs as the command ``thalweg serve`` does."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import _thalweg
from .errors import Error

if TYPE_CHECKING:
    from .remote import RemoteConnection

__all__ = ["Server", "serve"]


def serve(
    path: str | os.PathLike[str] = "thalweg-data",
    *,
    listen: str | None = None,
    config: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Server:
    """Starts a server in this process, and returns when it takes connections.

    ``path`` is its data directory: jobs that an earlier server has kept there go on. It listens at ``listen``, by
    default at ``127.0.0.1:7373``; port 0 is any that is free. ``options`` are those of ``server.toml``, which is read
    from the data directory or from ``config``. It ends with the process, or by ``stop``; its jobs take a last snapshot.
    """
    flags = [(key, str(value)) for key, value in (options or {}).items()]
    if listen is not None:
        flags.append(("listen", listen))
    file = None if config is None else os.fspath(config)
    return Server(_thalweg.RunningServer(os.path.abspath(os.fspath(path)), file, flags))


class Server:
    """A server in this process; :func:`serve` starts it. As a context manager it ends with the block."""

    def __init__(self, inner: _thalweg.RunningServer) -> None:
        self._inner = inner
        #: Its address.
        self.url: str = inner.url or ""
        #: A token that allows everything. It ends with the server.
        self.token: str = inner.token or ""
        atexit.register(self._end)

    @property
    def page(self) -> str:
        """The address of its page, with the token: whoever has it can do everything that the server can."""
        return f"{self.url}/#token={self.token}"

    @property
    def problems(self) -> list[str]:
        """What could not be read of the data directory."""
        return self._inner.problems

    @property
    def is_running(self) -> bool:
        """False when it has ended."""
        return self._inner.is_running

    def connect(self, *, settings: Mapping[str, str] | None = None) -> RemoteConnection:
        """A connection to it, as by :func:`connect`."""
        from .remote import RemoteConnection

        return RemoteConnection(self.url, self.token, settings or {})

    def stop(self) -> None:
        """Asks it to end: its jobs take a last snapshot. Returns at once; the second time it ends at once."""
        try:
            self.connect()._request("DELETE", "/v1/tokens/python")
        except Error:
            pass  # It ends already.
        self._inner.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end, and raises what it has failed with. False if ``timeout`` seconds pass first. Ctrl-C
        ends the wait, not the server."""
        return self._inner.wait(timeout)

    def _end(self) -> None:
        if self.is_running:
            self.stop()
            self.wait()
        atexit.unregister(self._end)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __repr__(self) -> str:
        return f"<thalweg.Server at {self.url}{'' if self.is_running else ', ended'}>"
