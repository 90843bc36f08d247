"""The three roles of `shaperouterd`: a router, a worker, and both on one machine."""
