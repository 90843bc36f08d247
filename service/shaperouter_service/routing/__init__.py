"""Routing of requests to workers and graphs. Does no I/O and does not import TensorFlow."""
