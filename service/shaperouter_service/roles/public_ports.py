"""Warnings about ports that other machines can reach without protection."""

from pathlib import Path

import structlog

from shaperouter_service.rpc.addresses import is_public
from shaperouter_service.rpc.tls import ServerTls

log = structlog.get_logger(__name__)


def warn_of_public_server(
    address: str, *, protocol: str, tls: ServerTls | None, tokens: Path | None
) -> None:
    """Warns if a router's port lacks TLS or authentication.

    Args:
        address: Address of the server.
        protocol: Its protocol, grpc or http.
        tls: TLS settings of the server; None means plain text.
        tokens: File of the clients that may call; None means that anyone may.
    """
    public = is_public(address)
    if tls is None and tokens is not None:
        log.warning(
            "tokens travel in plain text: set --tls-cert and --tls-key, unless a proxy in front "
            "of this port speaks TLS",
            **{protocol: address},
        )
    elif tls is None and public:
        log.warning(
            "other machines can reach this port in plain text: set --tls-cert and --tls-key, "
            "unless a proxy in front of it speaks TLS",
            **{protocol: address},
        )
    if public and tokens is None and (tls is None or tls.client_ca is None):
        log.warning(
            "anyone who can reach this port may call it: set --tokens or --tls-client-ca, or "
            "listen on 127.0.0.1",
            **{protocol: address},
        )


def warn_of_public_worker(address: str, *, tls: ServerTls | None) -> None:
    """Warns if other machines can call a worker without a certificate.

    Args:
        address: Address of the gRPC server.
        tls: TLS settings of the server; None means plain text.
    """
    if is_public(address) and (tls is None or tls.client_ca is None):
        log.warning(
            "anyone who can reach this port may run requests, without tokens and limits: set "
            "--tls-cert, --tls-key and --tls-client-ca, or let only routers reach it",
            grpc=address,
        )
