"""Graphs of the workers: their states, and requests to compile more."""
