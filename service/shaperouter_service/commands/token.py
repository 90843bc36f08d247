"""`shaperouterd token`: generates a token and its entry for the --tokens file."""

import secrets

import click

# Random bytes of a token: 256 bits cannot be guessed, so a fast hash protects them.
_BYTES = 32


def _check(_: click.Context, __: click.Parameter, name: str) -> str:
    from shaperouter_service.auth import check_client_name

    try:
        check_client_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return name


@click.command()
@click.argument("name", callback=_check)
def token(name: str) -> None:
    """Generate a token for the client NAME.

    Prints the token on standard output, for the client alone; it is stored nowhere. Prints the
    entry for the --tokens file on standard error. The entry holds the token's digest, which is not
    secret.
    """
    from shaperouter_service.auth import token_digest

    new = secrets.token_urlsafe(_BYTES)
    click.echo(f'[clients."{name}"]\nsha256 = ["{token_digest(new)}"]', err=True)
    click.echo(new)
