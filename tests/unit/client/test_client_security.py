"""TLS and tokens of the client and the command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import trustme
from click.testing import CliRunner

from shaperouter import AsyncClient, Client, InvalidArgumentError, UnavailableError
from shaperouter._cli._main import cli

if TYPE_CHECKING:
    from conftest import FakeShaperouter

TOKEN = "a-token-of-search"


class Files:
    """Files with an authority's certificate, and a certificate and key for each end."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        self.ca, self.cert, self.key = (directory / name for name in ("ca", "cert", "key"))
        authority.cert_pem.write_to_path(str(self.ca))
        own = authority.issue_cert("a-client")
        own.cert_chain_pems[0].write_to_path(str(self.cert))
        own.private_key_pem.write_to_path(str(self.key))
        shown = authority.issue_cert("127.0.0.1")
        self.server = grpc.ssl_server_credentials(
            [(shown.private_key_pem.bytes(), shown.cert_chain_pems[0].bytes())],
            authority.cert_pem.bytes(),
            require_client_auth=True,
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_both_clients_use_mutual_tls_and_send_the_token(
    unstarted: FakeShaperouter, files: Files
) -> None:
    address = unstarted.listen_with_tls(files.server)
    unstarted.start()
    settings = {"ca": files.ca, "cert": files.cert, "key": files.key, "token": TOKEN}

    async def call() -> None:
        async with AsyncClient(address, **settings) as client:
            await client.generate("x")
            async with client.stream("x") as stream:
                async for _ in stream:
                    pass

    with Client(address, **settings) as client:
        client.generate("x")
        list(client.stream("x"))
    asyncio.run(call())
    sent = [each["authorization"] for each in unstarted.metadata]
    assert sent == [f"Bearer {TOKEN}"] * 4


@pytest.mark.usefixtures("fast_retries")
@pytest.mark.parametrize("given", [[], ["ca"]], ids=["plain text", "no certificate"])
def test_error_of_a_refused_connection_suggests_the_cause(
    unstarted: FakeShaperouter, files: Files, given: list[str]
) -> None:
    address = unstarted.listen_with_tls(files.server)
    unstarted.start()
    arguments = {name: getattr(files, name) for name in given}
    with Client(address, **arguments) as client, pytest.raises(UnavailableError) as caught:
        client.models()
    assert f"{address} answers, but no connection was made" in str(caught.value)
    assert "TLS is on at one end alone (tls, ca)" in str(caught.value)
    assert "(cert, key)" in str(caught.value)


@pytest.mark.usefixtures("fast_retries")
def test_error_of_tls_to_a_plain_text_service_suggests_the_cause(
    fake: FakeShaperouter, files: Files
) -> None:
    with Client(fake.address, ca=files.ca) as client, pytest.raises(UnavailableError) as caught:
        client.models()
    assert "TLS is on at one end alone" in str(caught.value)


@pytest.mark.parametrize("place", ["address", "unix_address"])
def test_a_token_is_sent_to_this_machine_without_tls(fake: FakeShaperouter, place: str) -> None:
    with Client(getattr(fake, place), token=TOKEN) as client:
        client.generate("x")
    assert fake.metadata[0]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_token_is_not_sent_across_a_network_in_plain_text(
    kind: type[Client | AsyncClient],
) -> None:
    with pytest.raises(InvalidArgumentError, match="in plain text: TLS is needed") as caught:
        kind("example.org:50051", token=TOKEN)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cert": "x.pem"}, "cert: needs key"),
        ({"key": "x.pem"}, "key: needs cert"),
        ({"tls": False, "ca": "x.pem"}, "tls: must not be off, because ca is given"),
        ({"ca": "/nonexistent/ca.pem"}, "ca: /nonexistent/ca.pem cannot be read: No such file"),
        ({"token": "secret value"}, "token: must be visible ASCII characters"),
        ({"token": b"secret"}, "token: must be visible ASCII characters"),
        ({"token": ""}, "token: must be visible ASCII characters"),
    ],
)
def test_contradictory_arguments_are_refused_at_once(
    kind: type[Client | AsyncClient], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        kind("127.0.0.1:1", **arguments)  # type: ignore[arg-type]  # of any type
    assert "secret" not in str(caught.value)


def test_token_is_never_shown(files: Files) -> None:
    with Client("example.org:1", ca=files.ca, token=TOKEN) as client:
        shown = repr(client) + repr(vars(client))
    assert TOKEN not in shown


def test_the_command_reads_the_token_from_a_file(fake: FakeShaperouter, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    arguments = ["models", "--address", fake.address]
    for more, variables in (
        (["--token-file", str(file)], {}),
        ([], {"SHAPEROUTER_TOKEN_FILE": str(file)}),
        ([], {"SHAPEROUTER_TOKEN": TOKEN}),
        (["--token-file", str(file)], {"SHAPEROUTER_TOKEN": "another"}),
    ):
        result = CliRunner().invoke(cli, [*arguments, *more], env=variables)
        assert result.exit_code == 0, result.output
    assert [each["authorization"] for each in fake.metadata] == [f"Bearer {TOKEN}"] * 4


def test_options_before_the_subcommand_win_over_variables(
    unstarted: FakeShaperouter, files: Files, tmp_path: Path
) -> None:
    address = unstarted.listen_with_tls(files.server)
    unstarted.start()
    arguments = ["--ca", str(files.ca), "--address", address, "models"]
    variables = {
        "SHAPEROUTER_CA": str(tmp_path / "wrong"),
        "SHAPEROUTER_CERT": str(files.cert),
        "SHAPEROUTER_KEY": str(files.key),
    }
    result = CliRunner().invoke(cli, arguments, env=variables)
    assert result.exit_code == 0, result.output


def test_the_command_has_no_option_for_the_token_itself() -> None:
    help_text = CliRunner().invoke(cli, ["models", "--help"], env={"SHAPEROUTER_TOKEN": TOKEN})
    assert "--token-file" in help_text.output
    assert "--token " not in help_text.output
    assert TOKEN not in help_text.output
