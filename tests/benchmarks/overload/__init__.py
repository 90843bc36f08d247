"""The service under far more load than it can serve: `make bench-overload`.

First the service's capacity is measured, with as many requests under way as it has slots, and what
each takes then. Then for a while 0.8 of that comes, and then five times of it; all the while a
client of its own sends a small probe now and then. What is admitted must keep the speed that it has
at capacity, what is not must hear so at once, and when it is over the probes must find everything
as they did before.
"""
