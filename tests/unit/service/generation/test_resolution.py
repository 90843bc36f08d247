"""Options are resolved: each gets its value, default or adjusted default."""

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.default_options import default_options
from harness.routing import LADDERS
from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.generation.resolution import expected_tokens, resolve
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.wire.options import (
    options_from_message,
    run_options_to_message,
)

# A checkpoint that says everything, and one that says little.
DEFAULTS = generation_pb2.GenerationOptions(
    max_new_tokens=20,
    min_new_tokens=3,
    do_sample=False,
    temperature=0.75,
    top_k=5,
    top_p=0.5,
    min_p=0.25,
    typical_p=0.125,
    repetition_penalty=1.5,
    no_repeat_ngram_size=3,
    num_beams=4,
    num_return_sequences=3,
    length_penalty=0.5,
    early_stopping=generation_pb2.EARLY_STOPPING_FIRST,
    eos_token_ids=[7, 9],
    logit_bias=[generation_pb2.LogitBias(token_id=1, bias=0.5)],
    bad_words_token_ids=[generation_pb2.TokenIds(ids=[2, 3])],
)
# Up to 4 beams.
MODEL = ServedModel(
    name="tiny",
    vocab_size=100,
    ladders=replace(LADDERS, lanes=LADDERS.lanes[:3]),
    default_options=options_from_message(DEFAULTS),
)
BARE_MODEL = ServedModel(
    name="bare",
    vocab_size=100,
    ladders=replace(LADDERS, lanes=LADDERS.lanes[:1]),
    default_options=options_from_message(default_options(eos_token_ids=[7])),
)


def resolved(
    model: ServedModel = BARE_MODEL,
    *,
    room: int = 1000,
    words: list[list[int]] | None = None,
    is_chat: bool = False,
    **options: Any,
) -> worker_pb2.RunOptions:
    given = options_from_message(generation_pb2.GenerationOptions(**options))
    return run_options_to_message(
        resolve(given, model, room=room, bad_words=words or [], is_chat=is_chat)
    )


def biases(options: worker_pb2.RunOptions) -> list[tuple[list[int], float]]:
    return [(list(bias.token_ids), bias.bias) for bias in options.biases]


def changed(**options: Any) -> ServedModel:
    """The model with other defaults."""
    defaults = generation_pb2.GenerationOptions()
    defaults.CopyFrom(DEFAULTS)
    defaults.MergeFrom(generation_pb2.GenerationOptions(**options))
    return replace(MODEL, default_options=options_from_message(defaults))


def test_options_without_an_effect_are_neutral() -> None:
    assert resolved(seed=0) == worker_pb2.RunOptions(
        max_new_tokens=64,
        temperature=1.0,
        top_p=1.0,
        typical_p=1.0,
        repetition_penalty=1.0,
        num_beams=1,
        num_return_sequences=1,
        length_penalty=1.0,
        early_stopping=generation_pb2.EARLY_STOPPING_HEURISTIC,
        eos_token_ids=[7],
    )


def test_defaults_are_the_checkpoints() -> None:
    assert resolved(MODEL, seed=0, do_sample=True) == worker_pb2.RunOptions(
        max_new_tokens=20,
        min_new_tokens=3,
        do_sample=True,
        temperature=0.75,
        top_k=5,
        top_p=0.5,
        min_p=0.25,
        typical_p=0.125,
        repetition_penalty=1.5,
        no_repeat_ngram_size=3,
        num_beams=4,
        num_return_sequences=3,
        length_penalty=0.5,
        early_stopping=generation_pb2.EARLY_STOPPING_FIRST,
        eos_token_ids=[7, 9],
        biases=[
            worker_pb2.SequenceBias(token_ids=[1], bias=0.5),
            worker_pb2.SequenceBias(token_ids=[2, 3], bias=-math.inf),
        ],
    )


def test_a_request_overrides_every_default() -> None:
    given: dict[str, Any] = {
        "max_new_tokens": 10,
        "min_new_tokens": 0,
        "do_sample": True,
        "temperature": 2.0,
        "seed": 3,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "num_beams": 2,
        "num_return_sequences": 1,
        "length_penalty": 0.0,
        "early_stopping": generation_pb2.EARLY_STOPPING_NEVER,
        "eos_token_ids": [1],
        "logprobs": 0,
    }
    options = resolved(MODEL, **given)
    assert {name: getattr(options, name) for name in given} == given


def test_log_probabilities_are_asked_for_or_not() -> None:
    assert not resolved().HasField("logprobs")
    assert resolved(logprobs=0).HasField("logprobs")


# Lengths.


def test_the_default_of_max_new_tokens_is_limited_by_the_room() -> None:
    assert resolved(room=28).max_new_tokens == 28


@pytest.mark.parametrize(
    ("model", "room", "options", "expected"),
    [
        (BARE_MODEL, 2000, {}, 1024),
        (MODEL, 2000, {}, 1024),  # more than its own default
        (BARE_MODEL, 500, {}, 500),
        (BARE_MODEL, 2000, {"max_new_tokens": 5}, 5),
    ],
)
def test_answers_in_conversations_are_longer_by_default(
    model: ServedModel, room: int, options: dict[str, Any], expected: int
) -> None:
    assert resolved(model, room=room, is_chat=True, **options).max_new_tokens == expected


def test_an_answer_whose_length_is_open_is_expected_to_be_shorter_than_its_limit() -> None:
    for given, is_chat, expected in (
        ({}, True, 128),
        ({"min_new_tokens": 200}, True, 200),
        ({"max_new_tokens": 500}, True, 500),
        ({}, False, 64),
    ):
        options = resolve(given, BARE_MODEL, room=2000, bad_words=[], is_chat=is_chat)
        assert expected_tokens(given, options, is_chat=is_chat) == expected


def test_the_default_of_max_new_tokens_leaves_room_for_min_new_tokens() -> None:
    assert resolved(min_new_tokens=100).max_new_tokens == 100


def test_the_default_of_min_new_tokens_gives_way_to_max_new_tokens() -> None:
    assert resolved(MODEL, max_new_tokens=2).min_new_tokens == 2
    assert resolved(MODEL, room=1).min_new_tokens == 1


# Sampling.


def test_decoding_is_greedy_by_default() -> None:
    assert not resolved().do_sample


def test_a_checkpoint_may_sample_by_default() -> None:
    assert resolved(changed(do_sample=True)).do_sample
    assert not resolved(changed(do_sample=True), do_sample=False).do_sample


def test_sampling_is_among_fifty_tokens_by_default() -> None:
    assert resolved(do_sample=True).top_k == 50


def test_without_sampling_its_options_have_no_effect() -> None:
    assert resolved(changed(num_beams=1), seed=0).temperature == 1.0
    options = resolved(MODEL)
    sampling = (options.top_k, options.top_p, options.min_p, options.typical_p)
    assert sampling == (0, 1.0, 0.0, 1.0)


def test_a_seed_is_chosen_when_there_is_none() -> None:
    seeds = {resolved().seed for _ in range(50)}
    assert len(seeds) == 50
    # What a JSON number holds exactly.
    assert all(0 <= seed < 2**53 for seed in seeds)


# Beam search.


def test_default_beams_are_no_more_than_there_are() -> None:
    assert resolved(changed(num_beams=9)).num_beams == 4
    assert resolved(replace(changed(num_beams=9), ladders=BARE_MODEL.ladders)).num_beams == 1


def test_default_beams_give_way_to_what_cannot_be_done_with_them() -> None:
    assert resolved(MODEL, logprobs=1).num_beams == 1


def test_stop_strings_go_to_the_worker_with_beams_alone() -> None:
    assert list(resolved(MODEL, stop=["x"], num_beams=2).stop) == ["x"]
    assert list(resolved(MODEL, stop=["x"], num_beams=1).stop) == []


def test_without_beams_the_options_of_the_search_have_no_effect() -> None:
    options = resolved(MODEL, num_beams=1)
    assert options.length_penalty == 1.0
    assert options.early_stopping == generation_pb2.EARLY_STOPPING_HEURISTIC


@pytest.mark.parametrize(
    ("options", "sequences"),
    [
        ({"num_beams": 2}, 2),
        ({"num_beams": 4}, 3),
        ({"num_beams": 1}, 1),
        ({"num_beams": 1, "do_sample": True}, 3),
        ({"num_beams": 2, "do_sample": True}, 2),
    ],
    ids=str,
)
def test_the_default_number_of_sequences_is_no_more_than_there_can_be(
    options: dict[str, Any], sequences: int
) -> None:
    assert resolved(MODEL, **options).num_return_sequences == sequences


# End tokens and biases.


def test_end_tokens_may_be_told_beside_the_defaults() -> None:
    assert resolved(BARE_MODEL).eos_token_ids == [7]
    assert resolved(BARE_MODEL, eos_token_ids=[1, 2]).eos_token_ids == [1, 2]


def test_biases_come_before_bans_in_the_order_of_the_request() -> None:
    options = resolved(
        logit_bias=[
            generation_pb2.LogitBias(token_id=5, bias=-2.0),
            generation_pb2.LogitBias(token_id=4, bias=1.0),
        ],
        bad_words=["any"],
        words=[[3, 2]],
        bad_words_token_ids=[generation_pb2.TokenIds(ids=[1])],
    )
    assert biases(options) == [([5], -2.0), ([4], 1.0), ([3, 2], -math.inf), ([1], -math.inf)]


def test_a_word_that_is_banned_twice_is_sent_once() -> None:
    options = resolved(
        bad_words=["any"], words=[[3]], bad_words_token_ids=[generation_pb2.TokenIds(ids=[3])]
    )
    assert biases(options) == [([3], -math.inf)]


def test_a_suppressed_end_token_is_banned() -> None:
    assert biases(resolved(suppress_tokens=[7, 9, 7])) == [([7], -math.inf), ([9], -math.inf)]


def test_suppressed_tokens_replace_the_checkpoints() -> None:
    model = changed(suppress_tokens=[4])
    assert ([4], -math.inf) in biases(resolved(model))
    found = biases(resolved(model, suppress_tokens=[5]))
    assert ([5], -math.inf) in found
    assert ([4], -math.inf) not in found


def test_options_without_a_field_of_their_own_are_sent_where_they_have_an_effect() -> None:
    options = resolved(changed(forced_eos_token_id=6), epsilon_cutoff=0.25, eta_cutoff=0.0)
    assert options.further == generation_pb2.GenerationOptions(
        epsilon_cutoff=0.25, forced_eos_token_id=6
    )


def test_options_about_the_source_have_no_effect_without_one() -> None:
    model = changed(encoder_no_repeat_ngram_size=2)
    assert not resolved(model).HasField("further")
    model = replace(model, kind=ModelKind.ENCODER_DECODER)
    assert resolved(model).further.encoder_no_repeat_ngram_size == 2


def test_scores_are_normalized_once_more_only_in_a_beam_search() -> None:
    model = changed(renormalize_logits=True)
    assert resolved(model).further.renormalize_logits
    assert not resolved(model, num_beams=1).HasField("further")
    assert not resolved(model, renormalize_logits=False).HasField("further")


# A checkpoint that limits a decoder's whole sequences; a prompt of one token leaves the defaults.
OF_SEQUENCES = replace(
    MODEL,
    kind=ModelKind.ENCODER_DECODER,
    max_length=64,
    default_options=MODEL.default_options | {"max_new_tokens": 11, "min_new_tokens": 7},
    default_max_length=12,
    default_min_length=8,
)


@pytest.mark.parametrize(
    ("prompt_tokens", "limits"),
    [(1, (11, 7)), (6, (6, 2)), (8, (4, 0)), (11, (1, 0)), (12, (1, 0)), (63, (1, 0))],
)
def test_limits_of_whole_sequences_include_the_decoders_prompt(
    prompt_tokens: int, limits: tuple[int, int]
) -> None:
    options = resolved(OF_SEQUENCES, room=64 - prompt_tokens)
    assert (options.max_new_tokens, options.min_new_tokens) == limits


def test_limits_of_whole_sequences_give_way_to_the_requests_own() -> None:
    options = resolved(OF_SEQUENCES, room=58, max_new_tokens=20)
    assert (options.max_new_tokens, options.min_new_tokens) == (20, 2)
    options = resolved(OF_SEQUENCES, room=58, min_new_tokens=9)
    assert (options.max_new_tokens, options.min_new_tokens) == (9, 9)
    options = resolved(OF_SEQUENCES, room=58, max_new_tokens=1)
    assert (options.max_new_tokens, options.min_new_tokens) == (1, 1)


def test_limits_of_new_tokens_do_not_depend_on_the_prompt() -> None:
    model = replace(OF_SEQUENCES, default_max_length=0, default_min_length=0)
    options = resolved(model, room=58)
    assert (options.max_new_tokens, options.min_new_tokens) == (11, 7)


def test_an_end_token_by_itself_is_not_banned() -> None:
    runs = [generation_pb2.TokenIds(ids=ids) for ids in ([7], [7, 7], [9])]
    assert biases(resolved(bad_words_token_ids=runs)) == [([7, 7], -math.inf), ([9], -math.inf)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"logit_bias": [generation_pb2.LogitBias(token_id=5, bias=2.0)]},
            [([5], 2.0), ([2, 3], -math.inf)],
        ),
        (
            {"bad_words_token_ids": [generation_pb2.TokenIds(ids=[6])]},
            [([1], 0.5), ([6], -math.inf)],
        ),
    ],
    ids=["logit_bias", "bad_words_token_ids"],
)
def test_biases_and_bans_replace_each_the_checkpoints_own(
    options: dict[str, Any], expected: list[tuple[list[int], float]]
) -> None:
    assert biases(resolved(MODEL, **options)) == expected
