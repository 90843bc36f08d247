"""``shaperouter generate``, run in this process."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.client_command import request_of, run
from shaperouter._option import Kind
from shaperouter._options import OPTIONS
from shaperouter.v1 import generation_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_generate_prints_only_the_new_text(fake: FakeShaperouter, stream: list[str]) -> None:
    result = run(fake, "generate", "TensorFlow is", *stream)
    assert (result.exit_code, result.stdout, result.stderr) == (0, " a library\n", "")
    assert request_of(fake).text == "TensorFlow is"


# Of each kind of option, arguments of the command and the field that they become.
ARGUMENTS: dict[Kind, tuple[tuple[str, ...], Any]] = {
    Kind.FLAG: ((), True),
    Kind.COUNT: (("9",), 9),
    Kind.SEED: (("3",), 3),
    Kind.NUMBER: (("-0.5",), -0.5),
    Kind.TOKEN: (("-1",), -1),
    Kind.EARLY_STOPPING: (("first",), generation_pb2.EARLY_STOPPING_FIRST),
    Kind.TOKENS: (("1", "2"), [1, 2]),
    Kind.LANGUAGE: (("fra_Latn",), "fra_Latn"),
    Kind.TEXT: (("{}",), "{}"),
    Kind.TEXTS: (("a", "b"), ["a", "b"]),
    Kind.LOGIT_BIAS: (
        ("5=-1", "4=2.5"),
        [
            generation_pb2.LogitBias(token_id=5, bias=-1.0),
            generation_pb2.LogitBias(token_id=4, bias=2.5),
        ],
    ),
    Kind.WORDS: (("c", "d"), ["c", "d"]),
}


def test_generate_sends_every_option(fake: FakeShaperouter) -> None:
    given = ["--model", "demo", "--json"]
    for option in OPTIONS:
        flag, values = option.flag.partition("/")[0], ARGUMENTS[option.kind][0]
        given += [each for value in values for each in (flag, value)] or [flag]
    result = run(fake, "generate", "x", *given)
    assert result.exit_code == 0, result.stderr
    fields: Any = {option.name: ARGUMENTS[option.kind][1] for option in OPTIONS}
    assert request_of(fake) == generation_pb2.GenerateStreamRequest(
        model="demo", text="x", options=generation_pb2.GenerationOptions(**fields)
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("heuristic", generation_pb2.EARLY_STOPPING_HEURISTIC),
        ("first", generation_pb2.EARLY_STOPPING_FIRST),
        ("never", generation_pb2.EARLY_STOPPING_NEVER),
    ],
)
def test_early_stopping_has_names(fake: FakeShaperouter, name: str, told: int) -> None:
    run(fake, "generate", "x", "--early-stopping", name)
    assert request_of(fake).options.early_stopping == told


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_several_sequences_are_printed_with_numbers_and_scores(
    fake: FakeShaperouter, stream: list[str]
) -> None:
    fake.script = [
        fake.delta(" best", 5),
        fake.delta(" second", 9, sequence=1),
        fake.completion(-0.5, -1.25),
    ]
    result = run(fake, "generate", "x", *stream)
    first = [] if stream else ["[1] · score -0.5000 · length"]
    assert result.stdout.splitlines() == [
        *first,
        " best",
        "[2] · score -1.2500 · length",
        " second",
    ]


def test_sampled_sequences_are_printed_without_scores(fake: FakeShaperouter) -> None:
    end = fake.completion()
    end.completion.sequences.add(finish_reason=generation_pb2.FINISH_REASON_STOP)
    fake.script[-1] = end
    result = run(fake, "generate", "x")
    assert result.stdout.splitlines() == ["[1] · length", " a library", "[2] · stop", ""]


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_tokens_without_text_are_explained(fake: FakeShaperouter, stream: list[str]) -> None:
    fake.script = [fake.delta("", 5, 9), fake.completion()]
    result = run(fake, "generate", "1 2", "--token-ids", *stream)
    assert (result.exit_code, result.stdout) == (0, "\n")
    assert result.stderr.startswith("A sequence has tokens but no text: ")


def test_generate_sends_no_option_that_was_not_given(fake: FakeShaperouter) -> None:
    run(fake, "generate", "x")
    assert request_of(fake).options == generation_pb2.GenerationOptions()


def test_greedy_is_sent(fake: FakeShaperouter) -> None:
    run(fake, "generate", "x", "--greedy")
    assert request_of(fake).options.HasField("do_sample")
    assert not request_of(fake).options.do_sample


@pytest.mark.parametrize(
    ("stdin", "text"), [("a b\n", "a b"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("é", "é"), ("", "")]
)
def test_one_line_break_is_removed_from_stdin(fake: FakeShaperouter, stdin: str, text: str) -> None:
    assert run(fake, "generate", "-", stdin=stdin).exit_code == 0
    assert request_of(fake).text == text


def test_stdin_that_is_not_utf8_is_refused(fake: FakeShaperouter) -> None:
    result = run(fake, "generate", "-", stdin=b"ab\xff")
    assert result.exit_code == 2
    assert "PROMPT: stdin is not UTF-8: byte 2 is 0xff" in result.stderr
    assert not fake.requests


@pytest.mark.parametrize("prompt", ["3 1 2", "3,1, 2", " 3\t1\n2 "])
def test_prompt_can_be_token_ids(fake: FakeShaperouter, prompt: str) -> None:
    assert run(fake, "generate", "--token-ids", prompt).exit_code == 0
    assert list(request_of(fake).token_ids.ids) == [3, 1, 2]
    assert not request_of(fake).HasField("text")


def test_error_names_the_wrong_token_id(fake: FakeShaperouter) -> None:
    result = run(fake, "generate", "--token-ids", "3 x")
    assert result.exit_code == 2
    assert "PROMPT[1]: must be an integer, got 'x'" in result.stderr


def test_json_is_one_object_with_the_complete_result(fake: FakeShaperouter) -> None:
    result = run(fake, "generate", "x", "--json")
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    generation = json.loads(result.stdout)
    assert generation["text"] == " a library"
    assert generation["sequences"] == [
        {
            "text": " a library",
            "token_ids": [5, 7, 8],
            "finish_reason": "length",
            "score": None,
            "logprobs": [],
        }
    ]
    assert generation["seed"] == 2**62 + 1
    assert generation["timings"]["stall_seconds"] == 2.5
    assert generation["graphs"][0]["served"] == {
        "model": "demo",
        "kind": "decode",
        "rows": 4,
        "length": 256,
        "beams": 1,
        "further": [],
        "exact": [],
    }


def test_json_stream_prints_one_object_per_event(fake: FakeShaperouter) -> None:
    events = [
        json.loads(line)
        for line in run(fake, "generate", "x", "--json", "--stream").stdout.splitlines()
    ]
    assert [event["event"] for event in events] == ["stall", "delta", "delta", "completion"]
    assert events[0]["signature"]["length"] == 16
    assert events[1] == {
        "event": "delta",
        "sequence": 0,
        "text": " a",
        "token_ids": [5],
        "logprobs": [],
    }
    assert events[3]["generation"]["text"] == " a library"


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_explain_prints_the_options_on_stderr(fake: FakeShaperouter, stream: list[str]) -> None:
    fake.script[-1] = routed(fake, 1)
    result = run(fake, "generate", "x", "--explain", *stream)
    assert request_of(fake).explain
    assert (result.exit_code, result.stdout) == (0, " a library\n")
    header, taken, other = result.stderr.splitlines()
    assert re.split(r"  +", header.strip()) == [
        *("worker", "prefill", "decode", "queue s", "stall s", "prefill s", "decode s", "total s")
    ]
    assert taken.split() == [
        *(">", "worker-0", "1x16", "4x256", "beams", "4"),
        *("0.125", "0.000", "0.062", "0.500", "0.688"),
    ]
    assert other.split()[:2] == ["worker-1", "1x16"]


def test_explain_prints_the_encode_graph_of_a_source(fake: FakeShaperouter) -> None:
    end = routed(fake, 1)
    for option in end.completion.completion.routes[0].options:
        option.ClearField("prefill")
        option.encode.CopyFrom(fake.signature(signature_pb2.GRAPH_KIND_ENCODE, 1, 32))
    fake.script[-1] = end
    header, taken, _ = run(fake, "generate", "x", "--explain").stderr.splitlines()
    assert header.split()[:3] == ["worker", "encode", "decode"]
    assert taken.split()[:4] == [">", "worker-0", "1x32", "4x256"]


def test_decoder_text_is_sent(fake: FakeShaperouter) -> None:
    run(fake, "generate", "good", "--decoder-text", "gut")
    request = request_of(fake)
    assert (request.text, request.decoder_text) == ("good", "gut")


def test_explain_prints_a_table_for_each_run(fake: FakeShaperouter) -> None:
    fake.script[-1] = routed(fake, 2)
    lines = run(fake, "generate", "x", "--explain").stderr.splitlines()
    assert [line for line in lines if line.startswith("Run")] == ["Run 1 of 2:", "Run 2 of 2:"]
    assert len([line for line in lines if line.startswith(">")]) == 2


def test_explain_reports_missing_routes(fake: FakeShaperouter) -> None:
    result = run(fake, "generate", "x", "--explain")
    assert result.stderr == "The service did not report how it routed the request.\n"


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_json_has_the_routes(fake: FakeShaperouter, stream: list[str]) -> None:
    fake.script[-1] = routed(fake, 1)
    result = run(fake, "generate", "x", "--explain", "--json", *stream)
    assert result.stderr == ""
    told = json.loads(result.stdout.splitlines()[-1])
    (route,) = (told["generation"] if stream else told)["routes"]
    assert [option["worker"] for option in route["options"]] == ["worker-0", "worker-1"]
    assert route["options"][1]["stall_seconds"] == 2.5


def routed(fake: FakeShaperouter, runs: int) -> generation_pb2.GenerateStreamResponse:
    end = fake.completion()
    end.completion.completion.routes.extend([fake.route()] * runs)
    return end
