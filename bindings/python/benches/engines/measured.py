"""What a workload returns, and how long a run of it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Seconds, and a checksum that is the same for all engines.
Measured = tuple[float, object]

MINUTE_US = 60_000_000


def timed(run: Callable[[], object], checksum: Callable[[Any], object]) -> Measured:
    """Runs it once, until its results are in the hands of the program. Then the clock stops, and they are checked."""
    begun = time.perf_counter()
    results = run()
    return time.perf_counter() - begun, checksum(results)
