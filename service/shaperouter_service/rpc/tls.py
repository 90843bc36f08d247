"""TLS of servers and clients, from files that may be replaced while they are in use.

A new connection uses the current files. An existing one keeps its certificates, as is usual in TLS.
"""

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grpc

from shaperouter_service.errors import StartupError
from shaperouter_service.system.files import ReloadedFiles, read_regular


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """TLS settings of a server.

    Attributes:
        cert: PEM file of the server's certificate and the intermediate ones.
        key: PEM file of the certificate's private key.
        client_ca: PEM file of the CA certificates that must have issued clients' certificates; None
            if clients need no certificate.
    """

    cert: Path
    key: Path
    client_ca: Path | None

    def credentials(self) -> grpc.ServerCredentials:
        """Creates gRPC's credentials, which check the files at each new connection.

        Raises:
            StartupError: A file cannot be used.
        """
        paths = [path for path in (self.cert, self.key, self.client_ca) if path]
        reloaded = ReloadedFiles(paths, self._read)
        given = reloaded.get()

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            before, given = given, reloaded.get()
            return None if given is before else given

        return grpc.dynamic_ssl_server_credentials(
            given,
            changed,  # type: ignore[arg-type]  # its documentation lets it return None
            require_client_authentication=self.client_ca is not None,
        )

    def contexts(self) -> Callable[[], ssl.SSLContext]:
        """Returns what gives the settings of each new connection over HTTP.

        They stay the same until the files change. Then they are new ones, which know no session of
        the earlier ones: in a resumed session, nobody checks the client's certificate.

        Raises:
            StartupError: A file cannot be used.
        """
        paths = [path for path in (self.cert, self.key, self.client_ca) if path]
        return ReloadedFiles(paths, self._read_context).get

    def _read_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _read_pair("tls-cert", self.cert, "tls-key", self.key, into=context)
        if self.client_ca:
            _read_ca("tls-client-ca", self.client_ca, into=context)
            context.verify_mode = ssl.CERT_REQUIRED
            # Each connection must show a certificate, which may have expired since the last one.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        return context

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert, key = _read_pair("tls-cert", self.cert, "tls-key", self.key)
        roots = _read_ca("tls-client-ca", self.client_ca) if self.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], roots)


@dataclass(frozen=True, kw_only=True)
class WorkerTls:
    """TLS settings of a router's connections to workers.

    Attributes:
        ca: PEM file of the CA certificates that must have issued workers' certificates.
        cert: PEM file of the router's own certificate; None if it has none.
        key: PEM file of its private key.
        name: Name that workers' certificates must have; None means the worker's address.
    """

    ca: Path
    cert: Path | None
    key: Path | None
    name: str | None

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns gRPC's credentials: the same object until the files change.

        Raises:
            StartupError: A file cannot be used, and there are no earlier credentials.
        """
        return self._reloaded.get()

    @cached_property
    def _reloaded(self) -> ReloadedFiles[grpc.ChannelCredentials]:
        paths = [path for path in (self.ca, self.cert, self.key) if path]
        return ReloadedFiles(paths, self._read)

    def _read(self) -> grpc.ChannelCredentials:
        roots = _read_ca("worker-tls-ca", self.ca)
        cert, key = None, None
        if self.cert and self.key:
            cert, key = _read_pair("worker-tls-cert", self.cert, "worker-tls-key", self.key)
        return grpc.ssl_channel_credentials(roots, key, cert)


def _read_pair(
    cert_option: str, cert: Path, key_option: str, key: Path, *, into: ssl.SSLContext | None = None
) -> tuple[bytes, bytes]:
    """Reads a certificate and its key, and gives them to a context.

    Also without one, because gRPC would refuse an invalid pair without a reason.
    """
    context = into or ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = _read(cert_option, cert), _read(key_option, key)
    try:
        with _in_memory(pair[0]) as cert_copy, _in_memory(pair[1]) as key_copy:
            # Without a passphrase, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(cert_copy, key_copy, password="")
    except (OSError, ValueError) as error:
        raise StartupError(
            f"{cert_option}, {key_option}: {cert} and {key} must be a certificate and its "
            f"unencrypted private key in PEM: {_reason(error)}"
        ) from error
    return pair


def _read_ca(option: str, path: Path, *, into: ssl.SSLContext | None = None) -> bytes:
    """Reads certificates of authorities, and gives them to a context, like `_read_pair`."""
    context = into or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    content = _read(option, path)
    try:
        with _in_memory(content) as copy:
            context.load_verify_locations(copy)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"{option}: {path} has no certificates in PEM: {_reason(error)}"
        ) from error
    return content


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yields the path of a copy in memory, which OpenSSL can read.

    OpenSSL must check the bytes that were read. The file may have changed since, or may be a pipe,
    which would block OpenSSL forever.
    """
    with os.fdopen(os.memfd_create("pem"), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


def _read(option: str, path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise StartupError(f"{option}: {path} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
