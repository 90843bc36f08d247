"""Metrics, logs and traces. One process shows the metrics of a pod, from its workers' snapshots."""
