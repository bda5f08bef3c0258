"""``python -m thalweg`` is the command ``thalweg``."""

from ._command import main

main()
