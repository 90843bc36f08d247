"""TLS at both ends, from files that may be replaced while they are in use.

A new connection gets what the files say when it is made. One that stands goes on with the
certificates that it began with, as TLS has it.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grpc

from shaperouter_service.errors import StartupError
from shaperouter_service.system.files import ReloadedFiles, read_regular


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """What a server shows, and what it asks of its clients.

    Attributes:
        cert: File of its certificate, and of those between it and the root, in PEM.
        key: File of the certificate's private key, in PEM.
        client_ca: File of the certificates that clients' must come from, in PEM; None lets clients
            in that have none.
    """

    cert: Path
    key: Path
    client_ca: Path | None

    def credentials(self) -> grpc.ServerCredentials:
        """Makes gRPC's form of it, which looks at the files at each new connection.

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

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert, key = _read_pair("tls-cert", self.cert, "tls-key", self.key)
        roots = _read_ca("tls-client-ca", self.client_ca) if self.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], roots)


@dataclass(frozen=True, kw_only=True)
class WorkerTls:
    """What a router asks of its workers, and what it shows them.

    Attributes:
        ca: File of the certificates that workers' must come from, in PEM.
        cert: File of the router's own certificate; None shows none.
        key: File of its private key.
        name: That workers' certificates must have; None is the address that a worker is at.
    """

    ca: Path
    cert: Path | None
    key: Path | None
    name: str | None

    def credentials(self) -> grpc.ChannelCredentials:
        """Gives gRPC's form of it: the same object for as long as the files don't change.

        Raises:
            StartupError: A file cannot be used, and never could.
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


def _read_pair(cert_option: str, cert: Path, key_option: str, key: Path) -> tuple[bytes, bytes]:
    """Reads a certificate and its key.

    gRPC would refuse a wrong pair without a word of why.
    """
    pair = _read(cert_option, cert), _read(key_option, key)
    try:
        with _in_memory(pair[0]) as cert_copy, _in_memory(pair[1]) as key_copy:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # A passphrase nobody could be asked for: without one, OpenSSL asks on the terminal.
            context.load_cert_chain(cert_copy, key_copy, password="")
    except (OSError, ValueError) as error:
        raise StartupError(
            f"{cert_option}, {key_option}: {cert} and {key} must be a certificate and its "
            f"unencrypted private key in PEM: {_reason(error)}"
        ) from error
    return pair


def _read_ca(option: str, path: Path) -> bytes:
    content = _read(option, path)
    try:
        with _in_memory(content) as copy:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(copy)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"{option}: {path} has no certificates in PEM: {_reason(error)}"
        ) from error
    return content


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Gives the path of a copy in memory, which OpenSSL can read.

    It is what was read that is checked: the file may be another by now, or a pipe, on which OpenSSL
    would wait for ever.
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
