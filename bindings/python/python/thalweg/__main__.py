"""``python -m thalweg`` is the command ``thalweg``."""

from ._command import main

if __name__ == "__main__":
    main()
