"""TLS and token of a connection."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from shaperouter._errors import InvalidArgumentError

FileName = str | os.PathLike[str]

_LOCAL_TCP = re.compile(r"(ipv4:|ipv6:|dns:///?)?(127\.[\d.]+|localhost|\[::1\]):\d+")
_TOKEN = re.compile(r"[\x21-\x7e]+")  # visible ASCII, which a header can have


@dataclass(frozen=True, kw_only=True)
class Security:
    """The security of a channel. Its content is never shown.

    Attributes:
        tls: Whether to use TLS.
        ca: PEM certificates of the authorities that may sign the service's; None for those gRPC
            knows.
        cert: The client's certificate in PEM; None to show none.
        key: The certificate's private key in PEM.
        token: Token to send with each call; None to send none.
    """

    tls: bool
    ca: bytes | None = field(repr=False)
    cert: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    token: str | None = field(repr=False)

    @classmethod
    def resolve(
        cls,
        *,
        tls: bool | None,
        ca: FileName | None,
        cert: FileName | None,
        key: FileName | None,
        token: str | None,
    ) -> "Security":
        """Reads the files and checks that the arguments fit together.

        Raises:
            InvalidArgumentError: A file cannot be read, or an argument needs another one.
        """
        files = {"ca": ca, "cert": cert, "key": key}
        given = [name for name, file in files.items() if file is not None]
        if tls is False and given:
            raise InvalidArgumentError.of("tls", f"must not be off, because {given[0]} is given")
        if (cert is None) != (key is None):
            there, missing = ("cert", "key") if key is None else ("key", "cert")
            raise InvalidArgumentError.of(there, f"needs {missing}")
        if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
            # The value is not shown, because it may be nearly the token.
            raise InvalidArgumentError.of("token", "must be visible ASCII characters, no spaces")
        content = {name: _read(name, file) for name, file in files.items()}
        return cls(tls=bool(tls or given), token=token, **content)

    def credentials(self, address: str) -> grpc.ChannelCredentials | None:
        """Creates gRPC's channel credentials; None for a plain channel.

        Raises:
            InvalidArgumentError: The token would be sent in plain text.
        """
        if self.tls:
            channel = grpc.ssl_channel_credentials(self.ca, self.key, self.cert)
        elif self.token is None:
            return None
        elif address.startswith(("unix:", "unix-abstract:")):
            channel = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        elif is_loopback(address):
            # gRPC itself makes sure that the connection does not leave this machine.
            channel = grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP)
        else:
            raise InvalidArgumentError.of(
                "token", f"would travel to {address} in plain text: TLS is needed (tls or ca)"
            )
        if self.token is None:
            return channel
        call = grpc.access_token_call_credentials(self.token)
        return grpc.composite_channel_credentials(channel, call)


def is_loopback(address: str) -> bool:
    """Whether an address is a TCP address of this machine itself."""
    return _LOCAL_TCP.fullmatch(address) is not None


def _read(name: str, file: FileName | None) -> bytes | None:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgumentError.of(name, f"{file} cannot be read: {error.strerror}") from error
