"""The help of `shaperouterd`."""

import pytest

from harness.roles import Run
from shaperouter_service import __version__
from shaperouter_service.commands.group import cli

COMMON = [
    "--model",
    "--model-repository",
    "--metrics-listen",
    "--health-listen",
    "--grace",
    "--log-level",
    "--log-format",
    "--tracing",
    "--config",
]
ENGINE = [
    "--dtype",
    "--kernels",
    "--kv-cache-dtype",
    "--slots",
    "--max-length",
    "--queue-limit",
    "--compile-threads",
    "--compile-mode",
    "--warm",
    "--beam-cover",
    "--max-graphs",
    "--max-memory",
    "--prefix-cache-memory",
    "--speculate",
    "--draft",
    "--prefill-lengths",
    "--decode-lengths",
    "--encode-lengths",
    "--threads",
    "--hang-timeout",
    "--check-padding",
    "--signature-histograms",
    "--compile-cache",
    "--compile-cache-size",
]
TLS = ["--tls-cert", "--tls-key", "--tls-client-ca"]
PUBLIC = [
    "--listen",
    "--http-listen",
    "--console",
    "--trace-url",
    "--max-queue-seconds",
    "--max-calls",
    "--max-recording-memory",
    "--max-tensor-memory",
    "--tokens",
    "--share-prefixes",
    "--alias",
    "--on-demand-memory",
    "--idle-unload",
    *TLS,
]
WORKER_TLS = ["--worker-tls-ca", "--worker-tls-cert", "--worker-tls-key", "--worker-tls-name"]
OPTIONS = {
    "serve": [*COMMON, *PUBLIC, "--workers", *ENGINE],
    "router": [*COMMON, *PUBLIC, "--worker", "--ready-when", *WORKER_TLS],
    "worker": [*COMMON, "--listen", "--name", *TLS, *ENGINE],
}


def test_help_names_the_roles(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert [role for role in OPTIONS if f"  {role} " not in result.output] == []


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("role", OPTIONS)
def test_help_of_a_role_names_every_option(run: Run, role: str, flag: str) -> None:
    result = run(role, flag)
    assert result.exit_code == 0, result.output
    assert [option for option in OPTIONS[role] if f"  {option} " not in result.output] == []


@pytest.mark.parametrize("role", OPTIONS)
def test_help_of_a_role_names_every_variable(run: Run, role: str) -> None:
    text = " ".join(run(role, "--help").output.split())
    variables = [
        "SHAPEROUTER_" + option.removeprefix("--").replace("-", "_").upper()
        for option in OPTIONS[role]
    ]
    assert [name for name in variables if f"[env var: {name}" not in text] == []


@pytest.mark.parametrize("role", OPTIONS)
def test_the_table_of_options_is_complete(role: str) -> None:
    shown = [
        option.opts[0]
        for option in cli.commands[role].params
        if not getattr(option, "hidden", False)
    ]
    assert sorted(shown) == sorted(OPTIONS[role])


@pytest.mark.parametrize("role", OPTIONS)
def test_help_shows_defaults(run: Run, role: str) -> None:
    text = " ".join(run(role, "--help").output.split())
    assert "default: 127.0.0.1:9464" in text
    assert "default: 30.0" in text


def test_version(run: Run) -> None:
    assert __version__ in run("--version").output
