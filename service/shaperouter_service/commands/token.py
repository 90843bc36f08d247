"""`shaperouterd token`: a new token for a client, and what the file of tokens has to say of it."""

import secrets

import click

from shaperouter_service.access import check_name, digest

# Random bytes of a token: 256 bits, which nobody guesses, whatever they hash.
_BYTES = 32


def _checked(_: click.Context, __: click.Parameter, name: str) -> str:
    try:
        check_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return name


@click.command()
@click.argument("name", callback=_checked)
def token(name: str) -> None:
    """Makes a token for the client NAME.

    The token goes to standard output, for the client alone; it is kept nowhere. What the file of
    --tokens needs goes to standard error: the token's digest, which is no secret.
    """
    new = secrets.token_urlsafe(_BYTES)
    click.echo(f'[clients."{name}"]\nsha256 = ["{digest(new)}"]', err=True)
    click.echo(new)
