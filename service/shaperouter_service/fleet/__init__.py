"""The router's view of its workers: their state, and runs on them."""

from shaperouter_service.fleet.compiling import compiling
from shaperouter_service.fleet.deployments import deploying
from shaperouter_service.fleet.discovery import discovered
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.fleet.link import WorkerLink
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.fleet.recycling import recycling, warning_of_spent_budgets
from shaperouter_service.fleet.shared_names import warning_of_shared_names

__all__ = [
    "Fleet",
    "OverloadGuard",
    "WorkerLink",
    "compiling",
    "deploying",
    "discovered",
    "recycling",
    "warning_of_shared_names",
    "warning_of_spent_budgets",
]
