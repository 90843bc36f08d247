"""The ``shaperouter`` command: its tables, its options and its help, run in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from harness.client_command import run
from shaperouter import __version__
from shaperouter._cli._main import cli
from shaperouter._cli._tables import human_count, megabytes
from shaperouter.v1 import graph_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def test_models_prints_a_table(fake: FakeShaperouter) -> None:
    result = run(fake, "models")
    header, row = result.stdout.splitlines()
    assert header.split("  ")[0] == "model"
    assert row.split() == [
        *("demo", "gpt2", "float32", "6.29", "M", "256", "4", "25.2", "8.4", "of", "16.8", "1"),
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (20_480, "0.02"), (99_999, "0.1"), (100_000, "0.1"), (1_234_567_890, "1,234.6")],
)
def test_small_memory_is_not_rounded_to_zero(number: int, text: str) -> None:
    assert megabytes(number) == text


def test_models_as_json(fake: FakeShaperouter) -> None:
    (model,) = json.loads(run(fake, "models", "--json").stdout)["models"]
    assert model["weight_bytes"] == 25_165_824
    assert model["ladders"]["prefill_lengths"] == [16, 256]


@pytest.mark.parametrize(
    "command", [["models"], ["graphs"], ["generate", "x"], ["warm", "a decode 1x1"]]
)
def test_json_option_is_accepted_before_the_subcommand(
    fake: FakeShaperouter, command: list[str]
) -> None:
    before, after = run(fake, "--json", *command), run(fake, *command, "--json")
    assert before.stdout == after.stdout
    assert json.loads(before.stdout.splitlines()[-1])


def test_errors_before_the_call_are_printed_as_json(fake: FakeShaperouter) -> None:
    result = run(fake, "--json", "generate", "x", "--seed", str(2**63))
    assert json.loads(result.stderr)["error"]["violations"][0]["field"] == "options.seed"


def test_models_reports_an_empty_list_on_stderr(fake: FakeShaperouter) -> None:
    fake.models = []
    result = run(fake, "models")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No model" in result.stderr


def test_graphs_prints_a_table(fake: FakeShaperouter) -> None:
    _, row = run(fake, "graphs").stdout.splitlines()
    assert row.split() == [
        *("demo", "decode", "4x256", "worker-0", "ready", "1", "1", "0", "0.75", "2.50"),
        *("40", "2", "10.00", "0.40"),
    ]


def test_graphs_prints_the_reason_of_a_failure(fake: FakeShaperouter) -> None:
    fake.graphs.append(
        graph_pb2.Graph(
            signature=fake.signature(signature_pb2.GRAPH_KIND_PREFILL, 1, 16, beams=2),
            worker="worker-1",
            state=graph_pb2.GRAPH_STATE_FAILED,
            error="out of memory [3 GB]",
        )
    )
    lines = run(fake, "graphs").stdout.splitlines()
    assert lines[-1] == "demo prefill 1x16 beams 2 on worker-1 failed: out of memory [3 GB]"
    assert " - " in lines[2]


def test_graphs_sends_its_filters_and_prints_json(fake: FakeShaperouter) -> None:
    result = run(fake, "graphs", "--model", "demo", "--all", "--json")
    assert fake.requests == [graph_pb2.ListGraphsRequest(model="demo", include_cold=True)]
    (graph,) = json.loads(result.stdout)["graphs"]
    assert graph["state"] == "ready"
    assert graph["device_seconds"]["count"] == 40
    assert graph["device_seconds"]["mean"] == pytest.approx(0.01)


def test_tables_show_names_unchanged(fake: FakeShaperouter) -> None:
    fake.models[0].name = "[bold]:smile:" + "n" * 200
    assert fake.models[0].name in run(fake, "models").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate"],
        ["generate", "x", "--max-new-tokens", "many"],
        ["generate", "x", "--timeout", "0"],
        ["generate", "x", "--timeout", "nan"],
        ["generate", "x", "--seed", str(2**63)],
        ["generate", "x", "--early-stopping", "soon"],
        ["generate", "x", "--logit-bias", "5"],
        ["generate", "x", "--logit-bias", "5=x"],
        ["generate", "x", "--logit-bias", "5=1", "--logit-bias", "5=2"],
        ["generate", "x", "--logprobs", "0"],
        ["generate", "x", "--prompt-logprobs", "0"],
        ["models", "--address", "nonsense"],
        ["unknown"],
    ],
)
def test_wrong_usage_exits_with_2(fake: FakeShaperouter, arguments: list[str]) -> None:
    result = run(fake, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert not fake.requests


def test_connection_options_are_accepted_before_and_after_the_subcommand(
    fake: FakeShaperouter, unused_address: str
) -> None:
    invoke: Any = CliRunner().invoke
    before = invoke(cli, ["--address", fake.address, "models"])
    after = invoke(cli, ["--address", unused_address, "models", "--address", fake.address])
    assert before.exit_code == after.exit_code == 0


def test_address_comes_from_the_environment(fake: FakeShaperouter) -> None:
    result = CliRunner().invoke(cli, ["models"], env={"SHAPEROUTER_ADDRESS": fake.address})
    assert result.exit_code == 0


@pytest.mark.parametrize("command", [["models"], ["warm", "demo decode 1x64"], ["ready"]])
def test_invalid_timeout_is_refused_with_the_rule_and_the_value(
    fake: FakeShaperouter, command: list[str]
) -> None:
    result = run(fake, *command, "--timeout", "0")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: --timeout: must be a number of seconds above 0, or infinity for no limit, got 0.0\n"
    )


def test_timeout_sets_the_deadline(fake: FakeShaperouter) -> None:
    fake.script = [fake.hold]
    result = run(fake, "generate", "x", "--timeout", "0.2")
    assert result.exit_code == 1
    assert "0.2 s" in result.stderr


@pytest.mark.parametrize("command", [[], ["generate"], ["models"], ["graphs"], ["warm"], ["ready"]])
def test_every_option_has_help_with_its_default(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert result.exit_code == 0
    _, _, options = result.output.partition("Options:")
    entries = options.split("\n  -")[1:]
    assert len(entries) >= 2
    for entry in entries:
        assert "default" in entry or entry.startswith(("h, --help", "-version")), entry


def test_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"shaperouter, version {__version__}\n"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1_000, "1 k"), (6_291_456, "6.29 M"), (999_999, "1 M"),
     (124_439_808, "124 M"), (7_000_000_000, "7 G")],
)  # fmt: skip
def test_counts_are_readable(number: int, text: str) -> None:
    assert human_count(number) == text
