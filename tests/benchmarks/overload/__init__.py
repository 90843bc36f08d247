"""Benchmark of the service under far more load than it can serve: `make bench-overload`.

It first measures the service's capacity and the latency at capacity, with as many running requests
as there are slots. It then sends 0.8 of that rate for a while, and then five times that rate.
Throughout, a separate client sends small probes. Admitted requests must stay as fast as at
capacity, the others must be refused at once, and after the overload the probes must be as fast as
before it.
"""
