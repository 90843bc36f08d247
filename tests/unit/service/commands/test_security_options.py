"""Options of TLS, tokens and health: what the roles get of them."""

from pathlib import Path

import pytest

from harness.roles import NEEDED, Run, Started
from shaperouter_service.auth import Clients
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.tls import ServerTls, WorkerTls


@pytest.mark.parametrize("role", NEEDED)
def test_by_default_a_role_has_neither_tls_nor_tokens(
    started: Started, run: Run, role: str
) -> None:
    run(role, *NEEDED[role])
    assert started.config.tls is None
    assert started.config.health_listen is None
    assert getattr(started.config, "tokens", None) is None
    assert getattr(started.config, "worker_tls", None) is None


@pytest.mark.parametrize("role", NEEDED)
def test_a_role_gets_its_certificates_and_health_port(
    started: Started, run: Run, role: str
) -> None:
    files = ["--tls-cert=/c", "--tls-key=/k", "--tls-client-ca=/a"]
    run(role, *NEEDED[role], *files, "--health-listen=127.0.0.1:1")
    assert started.config.tls == ServerTls(cert=Path("/c"), key=Path("/k"), client_ca=Path("/a"))
    assert started.config.health_listen == "127.0.0.1:1"


def test_a_router_gets_the_tls_settings_for_workers(started: Started, run: Run) -> None:
    files = ["--worker-tls-ca=/a", "--worker-tls-cert=/c", "--worker-tls-key=/k"]
    run("router", "--worker=w:1", *files, "--worker-tls-name=workers", "--tokens=/t")
    assert started.config.worker_tls == WorkerTls(
        ca=Path("/a"), cert=Path("/c"), key=Path("/k"), name="workers"
    )
    assert started.config.tokens == Path("/t")


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tls-cert=/c"], "tls-cert: needs tls-key"),
        (["--tls-key=/k"], "tls-key: needs tls-cert"),
        (["--tls-client-ca=/a"], "tls-client-ca: needs tls-cert and tls-key"),
        (["--worker-tls-cert=/c"], "worker-tls-cert: needs worker-tls-key"),
        (["--worker-tls-name=n"], "worker-tls-cert, worker-tls-name: need worker-tls-ca"),
    ],
)
def test_an_incomplete_pair_of_options_is_refused(
    run: Run, arguments: list[str], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        run("router", *NEEDED["router"], *arguments)


def test_the_printed_entry_admits_the_new_token(run: Run, tmp_path: Path) -> None:
    made = run("token", "search-team")
    file = tmp_path / "tokens.toml"
    file.write_text(made.stderr)
    client = Clients(file).by_token(made.stdout.strip())
    assert client is not None
    assert client.name == "search-team"
    assert made.stdout.strip() not in made.stderr


def test_an_invalid_client_name_gets_no_token(run: Run) -> None:
    made = run("token", "two words")
    assert made.exit_code == 2
    assert "at most 64 letters" in made.stderr
