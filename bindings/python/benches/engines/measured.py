"""What a workload returns, and how long a run of it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds, and a checksum that is the same for all engines.
Measured = tuple[float, object]

MINUTE_US = 60_000_000


def timed(run: Callable[[], object]) -> Measured:
    """Runs it once. What it returns is the checksum."""
    begun = time.perf_counter()
    checksum = run()
    return time.perf_counter() - begun, checksum
