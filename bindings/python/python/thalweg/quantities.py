"""Durations and sizes as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["in_bytes", "milliseconds"]

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "seconds": 1_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}

_UNITS_BYTES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


def milliseconds(delay: str | float | timedelta) -> int:
    """A duration: ``"5 s"``, seconds, or a ``timedelta``."""
    if isinstance(delay, str):
        import re

        found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)\s*", delay)
        if found is None or found[2] not in _UNITS_MS:
            raise ValueError(f"{delay!r} is no duration; write it as '5 s', '500 ms' or '2 min'")
        value = float(found[1]) * _UNITS_MS[found[2]]
    elif isinstance(delay, (int, float)):
        value = delay * 1000
    else:
        value = delay.total_seconds() * 1000
    if value < 0:
        raise ValueError("a duration is not negative")
    return round(value)


def in_bytes(size: str | int) -> int:
    """A size: ``"512mb"``, or bytes."""
    if isinstance(size, int):
        return size
    import re

    found = re.fullmatch(r"\s*([0-9]+)\s*([kmg]?b)\s*", size.lower())
    if found is None:
        raise ValueError(f"{size!r} is no size; write it as '512mb' or '2gb'")
    return int(found[1]) * _UNITS_BYTES[found[2]]
