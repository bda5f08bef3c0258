"""The workloads of ``compare.py``, one module for each engine: functions that get the rows, prepare everything, and
measure the run."""
