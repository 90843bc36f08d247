"""Authentication of clients by tokens, and their quotas."""

from shaperouter_service.auth.authentication import Authentication, bearer_token
from shaperouter_service.auth.call_limit import CallLimit
from shaperouter_service.auth.clients import Client, Clients, check_client_name, token_digest
from shaperouter_service.auth.quotas import ClientQuota

__all__ = [
    "Authentication",
    "CallLimit",
    "Client",
    "ClientQuota",
    "Clients",
    "bearer_token",
    "check_client_name",
    "token_digest",
]
