"""Code shared by the benchmarks against other systems: model, contestants' processes, reports.

Each contestant runs in its own environment and process and speaks a line protocol: `protocol` is
the contestant's side, `processes` the conductor's.
"""
