"""The results of calls."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from shaperouter import (
    Client,
    FinishReason,
    GraphKind,
    GraphState,
    GraphUse,
    Histogram,
    InternalError,
    Ladders,
    LaneLadders,
    ModelKind,
    ModelNotFoundError,
    Route,
    RouteOption,
    Signature,
    Timings,
    TokenLogprob,
    TokenLogprobs,
    Usage,
)
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

DECODE = Signature(model="demo", kind=GraphKind.DECODE, rows=4, length=256)


def test_generation_has_every_field_of_the_response(client: Client) -> None:
    generation = client.generate("TensorFlow is")
    assert generation.text == " a library"
    assert generation.token_ids == (5, 7, 8)
    assert generation.finish_reason is FinishReason.LENGTH
    assert generation.request_id == "req-7"
    assert generation.model == "demo"
    assert generation.seed == 2**62 + 1
    assert generation.worker == "worker-0"
    assert generation.usage == Usage(prompt_tokens=3, padded_prompt_tokens=16, generated_tokens=3)
    assert generation.timings == Timings(
        route_seconds=0.0625,
        queue_seconds=0.125,
        stall_seconds=2.5,
        prefill_seconds=0.25,
        decode_seconds=0.5,
        time_to_first_token_seconds=3.0,
        total_seconds=3.5,
    )
    assert generation.graphs == (
        GraphUse(
            asked=dataclasses.replace(DECODE, rows=1, length=64),
            served=DECODE,
            calls=2,
            device_seconds=0.0625,
        ),
    )


def test_text_is_the_first_sequences(fake: FakeShaperouter, client: Client) -> None:
    fake.response.sequences[0].score = -0.5
    fake.response.sequences.add(
        text=" second",
        token_ids=[1],
        score=-1.25,
        finish_reason=generation_pb2.FINISH_REASON_STOP,
    )
    generation = client.generate("x")
    assert [sequence.text for sequence in generation.sequences] == [" a library", " second"]
    assert [sequence.score for sequence in generation.sequences] == [-0.5, -1.25]
    assert generation.sequences[1].finish_reason is FinishReason.STOP
    assert generation.text == " a library"


def test_a_sequence_without_beam_search_has_no_score(client: Client) -> None:
    assert client.generate("x").sequences[0].score is None


def test_each_new_token_has_log_probabilities(fake: FakeShaperouter, client: Client) -> None:
    assert client.generate("x").sequences[0].logprobs == ()
    fake.response.sequences[0].logprobs.append(fake.logprobs(5, -1.5))
    assert client.generate("x").sequences[0].logprobs == (
        TokenLogprobs(
            chosen=TokenLogprob(token_id=5, logprob=-1.5),
            top=(TokenLogprob(token_id=1, logprob=-0.25),),
        ),
    )


def test_each_token_of_the_prompt_has_log_probabilities(
    fake: FakeShaperouter, client: Client
) -> None:
    assert client.generate("x").prompt_logprobs == ()
    fake.response.prompt_logprobs.append(fake.logprobs(5, -1.5))
    generation = client.generate("x", prompt_logprobs=1)
    assert [each.chosen.token_id for each in generation.prompt_logprobs] == [5]
    assert fake.requests[-1].options.prompt_logprobs == 1


def test_str_of_a_generation_is_its_text_and_repr_is_short(
    fake: FakeShaperouter, client: Client
) -> None:
    fake.response.sequences[0].text = "long " * 1000
    generation = client.generate("x")
    assert str(generation) == "long " * 1000
    assert len(repr(generation)) < 120
    assert "req-7" in repr(generation)


def test_results_are_frozen(client: Client) -> None:
    generation = client.generate("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        generation.worker = "other"  # type: ignore[misc]  # the mistake


def test_values_of_a_newer_service_are_unknown(fake: FakeShaperouter, client: Client) -> None:
    # The stubs allow no unknown numbers.
    fake.response.sequences[0].finish_reason = 99  # type: ignore[assignment]
    fake.graphs[0].state = 99  # type: ignore[assignment]
    fake.graphs[0].signature.kind = 99  # type: ignore[assignment]
    assert client.generate("x").finish_reason is FinishReason.UNKNOWN
    (graph,) = client.graphs()
    assert graph.state is GraphState.UNKNOWN
    assert graph.signature.kind is GraphKind.UNKNOWN


@pytest.mark.parametrize("state", graph_pb2.GraphState.values()[1:])
def test_every_state_of_a_graph_is_known(
    fake: FakeShaperouter, client: Client, state: graph_pb2.GraphState
) -> None:
    fake.graphs[0].state = state
    (graph,) = client.graphs()
    assert f"GRAPH_STATE_{graph.state.upper()}" == graph_pb2.GraphState.Name(state)


def test_answer_without_a_sequence_is_an_internal_error(
    fake: FakeShaperouter, client: Client
) -> None:
    del fake.response.sequences[:]
    with pytest.raises(InternalError, match="without a sequence"):
        client.generate("x")


def test_models_and_model_agree(client: Client) -> None:
    (model,) = client.models()
    assert client.model("demo") == model
    assert (model.name, model.family, model.max_length) == ("demo", "gpt2", 256)
    assert model.default_options == {
        "max_new_tokens": 64,
        "temperature": 1.0,
        "early_stopping": "never",
        "eos_token_ids": (0,),
        "logit_bias": {3: -0.5},
        "bad_words": [(1, 2)],
    }
    assert model.parameters == 6_291_456
    assert model.ladders == Ladders(
        prefill_lengths=(16, 256),
        lanes=(LaneLadders(beams=1, decode_rows=(1, 4), decode_lengths=(64, 256)),),
        prefill_rows=(1, 2),
        prefill_batch_tokens=256,
    )


def test_unknown_model_is_not_found(client: Client) -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'gpt9'; have demo") as caught:
        client.model("gpt9")
    assert caught.value.request_id == "req-7"
    assert not caught.value.retriable


def test_graphs_have_signature_state_and_histograms(client: Client) -> None:
    (graph,) = client.graphs()
    assert graph.signature == DECODE
    assert graph.state is GraphState.READY
    assert graph.compile_seconds == Histogram(bounds=(1, 10), counts=(0, 1, 0), sum=2.5)
    assert graph.device_seconds.count == 40
    assert graph.device_seconds.mean == pytest.approx(0.01)


def test_graphs_have_loads_and_the_costs_of_their_shapes(
    fake: FakeShaperouter, client: Client
) -> None:
    fake.graphs[0].MergeFrom(
        graph_pb2.Graph(
            loads=2,
            load_seconds=0.5,
            step_seconds=0.03125,
            missed_seconds=1.5,
            padded_seconds=2.5,
            state_seconds=60.0,
            retry_seconds=4.0,
        )
    )
    (graph,) = client.graphs()
    assert (graph.loads, graph.load_seconds, graph.step_seconds) == (2, 0.5, 0.03125)
    assert (graph.missed_seconds, graph.padded_seconds) == (1.5, 2.5)
    assert (graph.state_seconds, graph.retry_seconds) == (60.0, 4.0)


def test_mean_of_no_observations_is_none() -> None:
    assert Histogram(bounds=(1,), counts=(0, 0), sum=0.0).mean is None


def test_generation_has_its_routes(fake: FakeShaperouter, client: Client) -> None:
    assert client.generate("x").routes == ()
    fake.response.completion.routes.append(fake.route())
    assert client.generate("x", explain=True).routes == (
        Route(
            options=(
                RouteOption(
                    worker="worker-0",
                    prefill=Signature(model="demo", kind=GraphKind.PREFILL, rows=1, length=16),
                    decode=dataclasses.replace(DECODE, beams=4),
                    queue_seconds=0.125,
                    stall_seconds=0.0,
                    prefill_seconds=0.0625,
                    decode_seconds=0.5,
                    total_seconds=0.6875,
                ),
                RouteOption(
                    worker="worker-1",
                    prefill=Signature(model="demo", kind=GraphKind.PREFILL, rows=1, length=16),
                    decode=Signature(
                        model="demo", kind=GraphKind.DECODE, rows=1, length=64, beams=4
                    ),
                    queue_seconds=0.0,
                    stall_seconds=2.5,
                    prefill_seconds=0.0625,
                    decode_seconds=0.25,
                    total_seconds=2.8125,
                ),
            )
        ),
    )


def test_route_has_the_encode_graph(fake: FakeShaperouter, client: Client) -> None:
    route = fake.route()
    for option in route.options:
        option.ClearField("prefill")
        option.encode.CopyFrom(fake.signature(signature_pb2.GRAPH_KIND_ENCODE, 1, 32))
    fake.response.completion.routes.append(route)
    (found,) = client.generate("x", explain=True).routes
    assert [option.prefill for option in found.options] == [None, None]
    encode = Signature(model="demo", kind=GraphKind.ENCODE, rows=1, length=32)
    assert [option.encode for option in found.options] == [encode, encode]


def test_source_tokens_are_counted_separately(fake: FakeShaperouter, client: Client) -> None:
    usage = fake.response.completion.usage
    usage.source_tokens, usage.padded_source_tokens = 20, 24
    found = client.generate("x").usage
    assert (found.source_tokens, found.padded_source_tokens) == (20, 24)


def test_model_with_an_encoder_has_its_kind_and_maximum_source_length(
    fake: FakeShaperouter, client: Client
) -> None:
    (told,) = fake.models
    told.kind = model_pb2.MODEL_KIND_ENCODER_DECODER
    told.max_source_length = 512
    told.ladders.encode_lengths.extend([16, 512])
    told.ladders.encode_rows.append(1)
    told.ladders.encode_batch_tokens = 128
    (model,) = client.models()
    assert (model.kind, model.max_source_length) == (ModelKind.ENCODER_DECODER, 512)
    assert (model.ladders.encode_lengths, model.ladders.encode_rows) == ((16, 512), (1,))
    assert model.ladders.encode_batch_tokens == 128
