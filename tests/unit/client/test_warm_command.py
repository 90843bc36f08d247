"""``shaperouter warm`` and ``shaperouter graphs --watch``, run in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from click.testing import CliRunner, Result

from harness.waiting import TIMEOUT
from shaperouter._cli._main import cli
from shaperouter.v1 import graph_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

DECODE, PREFILL = signature_pb2.GRAPH_KIND_DECODE, signature_pb2.GRAPH_KIND_PREFILL
READY, FAILED = graph_pb2.GRAPH_STATE_READY, graph_pb2.GRAPH_STATE_FAILED
TRACING, COMPILING = graph_pb2.GRAPH_STATE_TRACING, graph_pb2.GRAPH_STATE_COMPILING


def run(fake: FakeShaperouter, *arguments: str, stdin: str | bytes | None = None) -> Result:
    options = ["--address", fake.address, "--timeout", str(TIMEOUT)]
    return CliRunner().invoke(cli, [*options, *arguments], input=stdin)


def request_of(fake: FakeShaperouter) -> graph_pb2.WarmGraphsRequest:
    (request,) = fake.requests
    assert isinstance(request, graph_pb2.WarmGraphsRequest)
    return request


def test_each_change_prints_a_line_and_the_end_a_summary(fake: FakeShaperouter) -> None:
    fake.graph_updates = [
        [fake.graph(TRACING), fake.graph(READY, rows=2, beams=4)],
        [fake.graph(COMPILING), fake.graph(READY, rows=2, beams=4)],
        [fake.graph(COMPILING), fake.graph(READY, rows=2, beams=4)],
        [fake.graph(READY), fake.graph(READY, rows=2, beams=4)],
    ]
    result = run(fake, "warm", "demo decode 4x256", "demo decode 2x256 beams 4")
    assert (result.exit_code, result.stderr) == (0, "")
    *lines, summary = result.stdout.splitlines()
    assert lines == [
        "demo decode 4x256 on worker-0: tracing",
        "demo decode 2x256 beams 4 on worker-0: ready",
        "demo decode 4x256 on worker-0: compiling",
        "demo decode 4x256 on worker-0: ready",
    ]
    assert re.fullmatch(r"2 of 2 graphs ready after \d+\.\d s", summary)


def test_failed_graph_exits_with_1_and_the_reason(fake: FakeShaperouter) -> None:
    fake.graph_updates = [
        [fake.graph(READY), fake.graph(FAILED, rows=2, error="max_graphs is 8, and 8 are ready")]
    ]
    result = run(fake, "warm", "demo decode 4x256", "demo decode 2x256")
    assert result.exit_code == 1
    assert result.stderr == (
        "demo decode 2x256 on worker-0 failed: max_graphs is 8, and 8 are ready\n"
    )
    assert result.stdout.splitlines()[-1].startswith("1 of 2 graphs ready after")


def test_json_prints_one_object_per_change(fake: FakeShaperouter) -> None:
    fake.graph_updates.append([fake.graph(FAILED, error="out of memory")])
    result = run(fake, "warm", "demo decode 4x256", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    told = [json.loads(line)["graphs"][0] for line in result.stdout.splitlines()]
    assert [graph["state"] for graph in told] == ["tracing", "ready", "failed"]
    assert told[-1]["error"] == "out of memory"


def test_workers_are_sent(fake: FakeShaperouter) -> None:
    run(fake, "warm", "demo decode 4x256", "--worker", "a", "--worker", "b", "--all-workers")
    assert request_of(fake) == graph_pb2.WarmGraphsRequest(
        signatures=[fake.signature(DECODE, 4, 256)], workers=["a", "b"], all_workers=True
    )


def test_signatures_from_arguments_file_and_product_are_sent_once(
    fake: FakeShaperouter, tmp_path: Path
) -> None:
    file = tmp_path / "signatures.txt"
    file.write_text("demo prefill 1x16\n\ndemo decode 1x64 beams 4\n")
    result = run(
        fake,
        *("warm", "demo decode 4x256", "--file", str(file)),
        *("--model", "demo", "--kind", "decode", "--beams", "4"),
        *("--rows", "1,2", "--lengths", "64,128"),
    )
    assert result.exit_code == 0, result.stderr
    assert list(request_of(fake).signatures) == [
        fake.signature(DECODE, 4, 256),
        fake.signature(PREFILL, 1, 16),
        fake.signature(DECODE, 1, 64, 4),
        fake.signature(DECODE, 1, 128, 4),
        fake.signature(DECODE, 2, 64, 4),
        fake.signature(DECODE, 2, 128, 4),
    ]


def test_product_without_a_model_leaves_it_to_the_service(fake: FakeShaperouter) -> None:
    run(fake, "warm", "--kind", "prefill", "--rows", "1", "--lengths", "16")
    (signature,) = request_of(fake).signatures
    assert (signature.model, signature.kind, signature.beams) == ("", PREFILL, 1)


def test_signatures_are_read_from_stdin(fake: FakeShaperouter) -> None:
    run(fake, "warm", "--file", "-", stdin="demo decode 4x256\n")
    assert list(request_of(fake).signatures) == [fake.signature(DECODE, 4, 256)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["demo decode 4by256"], "SIGNATURE 1: the size must read ROWSxLENGTH, such as 4x256"),
        (["demo", "decode", "4x256"], "SIGNATURE 1: must read MODEL KIND ROWSxLENGTH"),
        ([], "give a SIGNATURE, --file, or --kind, --rows and --lengths"),
        (
            ["--kind", "decode", "--rows", "1"],
            "--kind, --rows and --lengths must be given together",
        ),
        (["--beams", "4"], "--kind, --rows and --lengths must be given together"),
        (
            ["--kind", "decode", "--rows", "1;2", "--lengths", "64"],
            "must be integers separated by commas",
        ),
        (["--kind", "unknown", "--rows", "1", "--lengths", "64"], "'unknown' is not one of"),
        (["--file", "/nonexistent"], "No such file"),
    ],
)
def test_wrong_usage_exits_with_2(fake: FakeShaperouter, arguments: list[str], told: str) -> None:
    result = run(fake, "warm", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert not fake.requests


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"demo decode 4x256\ndemo unknown 1x16\n", "<stdin>, line 2: the kind must be encode,"),
        (b"demo decode 4x256\n\xff\n", "<stdin>: is not UTF-8"),
    ],
)
def test_error_names_the_wrong_line(fake: FakeShaperouter, content: bytes, told: str) -> None:
    result = run(fake, "warm", "--file", "-", stdin=content)
    assert result.exit_code == 2
    assert told in result.stderr
    assert not fake.requests


def test_refusal_of_the_service_exits_with_2(fake: FakeShaperouter) -> None:
    told = "signatures[0].rows: must be one of 1, 2, 4 (rows of decode beams 1 of demo), got 3"
    fake.graph_updates = [fake.fail(grpc.StatusCode.INVALID_ARGUMENT, told)]
    result = run(fake, "warm", "demo decode 3x256")
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_stopping_service_exits_with_1_and_without_a_summary(fake: FakeShaperouter) -> None:
    fake.graph_updates[1] = fake.fail(grpc.StatusCode.UNAVAILABLE, "the service is being stopped")
    result = run(fake, "warm", "demo decode 4x256")
    assert result.exit_code == 1
    assert result.stdout == "demo decode 4x256 on worker-0: tracing\n"
    assert "the service is being stopped" in result.stderr


def test_help_has_one_example_per_line() -> None:
    output = CliRunner().invoke(cli, ["warm", "--help"]).output
    assert '  shaperouter warm "gpt2 prefill 1x16" "gpt2 decode 4x256 beams 4"\n' in output


# Watching.


def test_watch_as_json_prints_one_object_per_change(fake: FakeShaperouter) -> None:
    result = run(fake, "graphs", "--watch", "--json", "--model", "demo", "--all")
    assert (result.exit_code, result.stderr) == (0, "")
    told = [json.loads(line)["graphs"][0]["state"] for line in result.stdout.splitlines()]
    assert told == ["tracing", "ready"]
    assert fake.requests == [graph_pb2.WatchGraphsRequest(model="demo", include_cold=True)]


def test_watch_without_a_terminal_needs_json(fake: FakeShaperouter) -> None:
    result = run(fake, "graphs", "--watch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--watch needs a terminal, or --json" in result.stderr
    assert not fake.requests


@pytest.mark.usefixtures("fast_retries")
def test_watch_that_cannot_start_exits_with_1(unused_address: str) -> None:
    result = CliRunner().invoke(cli, ["graphs", "--watch", "--json", "--address", unused_address])
    assert result.exit_code == 1
    assert "no Shaperouter at" in json.loads(result.stderr)["error"]["message"]
