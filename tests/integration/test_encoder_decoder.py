"""A model with an encoder, and one without, through the real client, router and worker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.service import GOLDENS, Service, kept_compilations, serving
from harness.waiting import wait_until
from shaperouter import Client, FinishReason, InvalidArgumentError, ModelKind

EXPECTED = json.loads((GOLDENS / "t5-gated.json").read_text())
MAX_LENGTH = EXPECTED["max_length"]


@pytest.fixture(scope="module")
def answering() -> Iterator[Service]:
    with serving(
        f"--model=answering={GOLDENS / 't5-gated'}",
        f"--model=continuing={GOLDENS / 'gpt2-untied'}",
        "--slots=2",
        env=kept_compilations(),
    ) as service:
        yield service


@pytest.fixture(scope="module")
def client(answering: Service) -> Iterator[Client]:
    with Client(answering.address) as client:
        yield client


def _arguments(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a golden case for the client."""
    given = dict(case.get("options") or {"max_new_tokens": case["max_new_tokens"]})
    if "decoder_token_ids" in case:
        given["decoder_token_ids"] = case["decoder_token_ids"]
    return given


def _plain(options: dict[str, Any]) -> bool:
    """Whether a case is greedy or beam search without other options."""
    return not {"early_stopping", "logit_bias", "bad_words_token_ids"} & options.keys()


def test_unary_and_stream_equal_the_reference(client: Client) -> None:
    cases = [case for case in EXPECTED["option_cases"] if _plain(case["options"])]
    for case in [*EXPECTED["cases"][::5], *cases[::3]]:
        source, arguments = case["prompt_token_ids"], _arguments(case)
        right = case.get("sequences") or [case]
        whole = client.generate(source, model="answering", **arguments)
        assert [list(one.token_ids) for one in whole.sequences] == [
            one["token_ids"] for one in right
        ]
        with client.stream(source, model="answering", **arguments) as stream:
            for _ in stream:
                pass
        assert stream.result.sequences == whole.sequences
        reasons = [FinishReason[one["finish_reason"].upper()] for one in right]
        assert [one.finish_reason for one in whole.sequences] == reasons


def test_the_echo_is_the_decoders_prompt(client: Client) -> None:
    plain = client.generate([5, 6, 7], decoder_token_ids=[9], model="answering", max_new_tokens=3)
    echoed = client.generate(
        [5, 6, 7], decoder_token_ids=[9], model="answering", max_new_tokens=3, echo=True
    )
    assert echoed.token_ids == (0, 9, *plain.token_ids)


def test_a_response_reports_how_its_source_was_read(client: Client) -> None:
    result = client.generate(
        list(range(2, 22)), model="answering", max_new_tokens=9, min_new_tokens=9, explain=True
    )
    assert [use.asked.shape for use in result.graphs][:2] == ["encode 1x24", "decode 1x64"]
    encode = result.graphs[0].served
    usage = result.usage
    assert (usage.source_tokens, usage.prompt_tokens, usage.padded_prompt_tokens) == (20, 1, 0)
    assert usage.padded_source_tokens == encode.length
    assert usage.generated_tokens == 9
    (route,) = result.routes
    assert route.options[0].encode == encode
    assert route.options[0].prefill is None
    assert result.timings.prefill_seconds > 0


def test_a_model_reports_whether_it_has_an_encoder(client: Client) -> None:
    answering, continuing = client.model("answering"), client.model("continuing")
    assert (answering.kind, continuing.kind) == (ModelKind.ENCODER_DECODER, ModelKind.DECODER)
    assert (answering.max_source_length, continuing.max_source_length) == (MAX_LENGTH, 0)
    assert answering.ladders.encode_lengths[-1] == MAX_LENGTH
    assert continuing.ladders.encode_lengths == ()


@pytest.mark.parametrize(
    ("model", "source", "arguments", "message"),
    [
        (
            "answering",
            [3] * (MAX_LENGTH + 1),
            {},
            r"token_ids.ids: must have at most 100 tokens \(max_source_length of .*got 101",
        ),
        (
            "continuing",
            [3],
            {"decoder_token_ids": [4]},
            "decoder_token_ids: must not be set: model continuing has no encoder",
        ),
        (
            "answering",
            [3],
            {"decoder_text": "Das"},
            "decoder_text: model answering has no tokenizer; send decoder_token_ids",
        ),
        (
            "answering",
            [3],
            {"decoder_token_ids": [4] * 10, "max_new_tokens": 95},
            "options.max_new_tokens: must be at most 89 after a prompt of 11 tokens",
        ),
    ],
)
def test_unsupported_input_is_refused_by_name(
    client: Client, model: str, source: list[int], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        client.generate(source, model=model, **arguments)


def test_encode_graphs_are_compiled_on_demand_and_listed(
    client: Client, answering: Service
) -> None:
    with client.warm_graphs(["answering encode 2x16"]) as stream:
        *_, last = stream
    assert [str(graph.signature) for graph in last] == ["answering encode 2x16"]
    made = {graph.signature.shape for graph in client.graphs("answering")}
    assert {"encode 1x100", "encode 2x16", "prefill 1x100", "decode 1x100"} <= made
    client.generate([3, 4], model="answering", max_new_tokens=2)
    name, labels = "shaperouter_padding_tokens_total", {"model": "answering", "kind": "encode"}
    wait_until(lambda: answering.metric(name, **labels) > 0)
