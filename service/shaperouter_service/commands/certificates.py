"""`shaperouterd certificates`: writes certificates for trying TLS."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import click

from shaperouter_service.commands.options.numbers import Integer
from shaperouter_service.errors import StartupError

_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=_HOSTS,
    show_default=", ".join(_HOSTS),
    metavar="NAME|IP",
    help="Name or IP address by which clients call the server. Can be repeated.",
)
@click.option(
    "--days",
    type=Integer(1, 365),
    default=30,
    show_default=True,
    help="Number of days that the certificates are valid.",
)
def certificates(*, directory: Path, hosts: Sequence[str], days: int) -> None:
    """Write certificates for trying TLS into DIRECTORY.

    Writes a CA certificate (ca.pem), a server's certificate and key (server.pem, server.key), and a
    client's for mTLS (client.pem, client.key). They are for tests only: the CA's key is thrown
    away, so the CA cannot issue further certificates. In production, use certificates of your own
    CA. DIRECTORY must be empty or not exist. Needs shaperouter-service[certificates].
    """
    try:
        import trustme
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{error.name} is not installed; it is part of shaperouter-service[certificates]"
        ) from error

    if directory.exists() and any(directory.iterdir()):
        raise StartupError(f"{directory}: must be an empty directory or not exist")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = trustme.CA(organization_name="Shaperouter test authority")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    for name, identities in (("server", hosts), ("client", ("client",))):
        issued = authority.issue_cert(*identities, not_after=end)
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        (directory / f"{name}.pem").write_bytes(chain)
        key = directory / f"{name}.key"
        key.touch(mode=0o600)
        key.write_bytes(issued.private_key_pem.bytes())
    click.echo(
        f"""Wrote certificates to {directory}, valid for {days} days, for {", ".join(hosts)}.

  shaperouterd serve --tls-cert {directory}/server.pem --tls-key {directory}/server.key \\
    --tls-client-ca {directory}/ca.pem
  shaperouter --ca {directory}/ca.pem --cert {directory}/client.pem \\
    --key {directory}/client.key models

Without --tls-client-ca, clients need no certificate of their own."""
    )
