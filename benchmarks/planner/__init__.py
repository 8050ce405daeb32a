"""The planner against everything that one could write instead: `python -m benchmarks planner --help`."""
