"""Who may call, and how much each may ask for."""

from shaperouter_service.auth.accounts import Account, Accounts, current_account, within_limits
from shaperouter_service.auth.authentication import Authentication
from shaperouter_service.auth.clients import Client, Clients, check_name, digest
from shaperouter_service.auth.places import CallPlaces

__all__ = [
    "Account",
    "Accounts",
    "Authentication",
    "CallPlaces",
    "Client",
    "Clients",
    "check_name",
    "current_account",
    "digest",
    "within_limits",
]
