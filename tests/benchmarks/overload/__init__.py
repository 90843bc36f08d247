"""The service alone, under far more load than it can bear: `make bench-overload`.

For a while at 0.8 of its capacity, then at five times of it, then nothing; all the while a client
of its own sends a small probe now and then. What was admitted must keep its speed, what is not must
hear so at once, and when it is over the next probe must find everything as before.
"""
