"""The processes of local workers: starting, watching, restarting and ending them."""

from shaperouter_service.supervision.worker_process import WorkerProcess, reason_of_end, spawning
from shaperouter_service.supervision.worker_processes import SUCCESSOR, WorkerProcesses

__all__ = ["SUCCESSOR", "WorkerProcess", "WorkerProcesses", "reason_of_end", "spawning"]
