"""Options of TLS: for any server, and for a router's connections to workers.

The options name files. No option or variable contains a secret itself, because other users and
programs can read command lines and environments.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from shaperouter_service.commands.options.declaring import option, options_of
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.tls import ServerTls, WorkerTls

_FILE: dict[str, Any] = {
    "type": click.Path(dir_okay=False, path_type=Path),
    "metavar": "FILE",
    "default": None,
}


@dataclass(frozen=True, kw_only=True)
class TlsOptions:
    """Values of `tls_options`, whose help says what each is."""

    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None

    def server(self) -> ServerTls | None:
        """The TLS settings of the server; None means plain text.

        Raises:
            StartupError: An option is set without another that it needs.
        """
        _check_pair("tls-cert", self.tls_cert, "tls-key", self.tls_key)
        if self.tls_cert is None or self.tls_key is None:
            if self.tls_client_ca:
                raise StartupError("tls-client-ca: needs tls-cert and tls-key")
            return None
        return ServerTls(cert=self.tls_cert, key=self.tls_key, client_ca=self.tls_client_ca)


tls_options = options_of(
    TlsOptions,
    "tls",
    option(
        "--tls-cert",
        **_FILE,
        help="Certificate chain of the gRPC server, in PEM: its certificate, then the "
        "intermediate ones. Without it, the server speaks plain text. The TLS files are "
        "reloaded when they change, and apply to new connections.",
    ),
    option("--tls-key", **_FILE, help="Private key of --tls-cert, in PEM."),
    option(
        "--tls-client-ca",
        **_FILE,
        help="CA certificates that clients' certificates must be issued by, in PEM (mTLS). "
        "Without it, clients need no certificate.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class WorkerTlsOptions:
    """Values of `worker_tls_options`, whose help says what each is."""

    worker_tls_ca: Path | None
    worker_tls_cert: Path | None
    worker_tls_key: Path | None
    worker_tls_name: str | None

    def workers(self) -> WorkerTls | None:
        """The TLS settings for connections to workers; None means plain text.

        Raises:
            StartupError: An option is set without another that it needs.
        """
        _check_pair("worker-tls-cert", self.worker_tls_cert, "worker-tls-key", self.worker_tls_key)
        if self.worker_tls_ca is None:
            if self.worker_tls_cert or self.worker_tls_name:
                raise StartupError("worker-tls-cert, worker-tls-name: need worker-tls-ca")
            return None
        return WorkerTls(
            ca=self.worker_tls_ca,
            cert=self.worker_tls_cert,
            key=self.worker_tls_key,
            name=self.worker_tls_name,
        )


worker_tls_options = options_of(
    WorkerTlsOptions,
    "worker_tls",
    option(
        "--worker-tls-ca",
        **_FILE,
        help="CA certificates that workers' certificates must be issued by, in PEM. Without it, "
        "the router speaks plain text with workers. The TLS files are reloaded when they "
        "change.",
    ),
    option(
        "--worker-tls-cert",
        **_FILE,
        help="Certificate that the router shows to workers that run with --tls-client-ca, in PEM.",
    ),
    option("--worker-tls-key", **_FILE, help="Private key of --worker-tls-cert, in PEM."),
    option(
        "--worker-tls-name",
        default=None,
        show_default="the worker's address",
        metavar="NAME",
        help="Name that workers' certificates must have. Needed if --worker is a host name, "
        "because the router connects to the addresses behind it.",
    ),
)


def _check_pair(cert_option: str, cert: Path | None, key_option: str, key: Path | None) -> None:
    if (cert is None) != (key is None):
        given, missing = (cert_option, key_option) if cert else (key_option, cert_option)
        raise StartupError(f"{given}: needs {missing}")
