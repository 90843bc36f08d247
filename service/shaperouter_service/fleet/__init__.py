"""The router's view of its workers: their processes, their state, and runs on them."""

from shaperouter_service.fleet.compiling import compiling
from shaperouter_service.fleet.discovery import discovered
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.fleet.link import WorkerLink
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.fleet.processes import WorkerProcesses
from shaperouter_service.fleet.recycling import recycling, warning_of_spent_budgets
from shaperouter_service.fleet.shared_names import warning_of_shared_names
from shaperouter_service.fleet.supervisor import WorkerProcess, spawning

__all__ = [
    "Fleet",
    "OverloadGuard",
    "WorkerLink",
    "WorkerProcess",
    "WorkerProcesses",
    "compiling",
    "discovered",
    "recycling",
    "spawning",
    "warning_of_shared_names",
    "warning_of_spent_budgets",
]
