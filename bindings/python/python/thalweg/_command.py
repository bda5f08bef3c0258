"""The command ``thalweg``, which the wheel brings along."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Does what the command line says, and ends the process with its status."""
    from ._thalweg import command

    sys.exit(command(sys.argv))
