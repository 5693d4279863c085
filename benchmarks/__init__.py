"""Benchmarks: a script for each speed claim, run from the repository's root: `python -m benchmarks.NAME`."""
