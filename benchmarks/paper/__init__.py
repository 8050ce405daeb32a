"""The experiments of the paper: `python -m benchmarks paper --help`."""
