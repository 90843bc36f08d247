"""Graphs of the workers: what there is, and requests to compile more."""
