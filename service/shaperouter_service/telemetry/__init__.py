"""Metrics and logs. One process owns the metrics of a pod; workers report to it by snapshots."""
