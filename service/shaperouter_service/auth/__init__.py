"""Who may call, and how much each may ask for."""

from shaperouter_service.auth.accounts import Account, Accounts
from shaperouter_service.auth.authentication import Authentication, bearer_token
from shaperouter_service.auth.clients import Client, Clients, check_name, digest
from shaperouter_service.auth.places import CallPlaces

__all__ = [
    "Account",
    "Accounts",
    "Authentication",
    "CallPlaces",
    "Client",
    "Clients",
    "bearer_token",
    "check_name",
    "digest",
]
