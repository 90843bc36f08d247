"""Tests with a real Prometheus: the dashboard, and a day in production.

============== ====================================================================
day            the story: what happens to a cluster in a day, and what has to hold
__main__       gives it namespaces, in which it runs as if the machine were its own
network        hosts, and a network between them that can be cut
dns            names that stand for the addresses of pods
volumes        files that pods share, and that change under them
pods           one process on a host of its own, as a kubelet keeps it
workloads      routers and workers as Kubernetes rolls and scales them
manifests      the cluster's kustomization, as an operator edits it
callers        users: requests all day, answers compared
prometheus     a Prometheus to ask, and the rules of deploy/ for a day that passes quickly
dashboard      asks it every query of the dashboard, after a load
============== ====================================================================
"""
