"""The requests that calls send, and the arguments that they refuse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from shaperouter import Client, GenerationOptions, InvalidArgumentError
from shaperouter._option import Kind
from shaperouter._options import OPTIONS
from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter


# Of each kind of option, values as keywords and as fields.
VALUES: dict[Kind, tuple[Any, Any]] = {
    Kind.FLAG: (True, True),
    Kind.COUNT: (3, 3),
    Kind.SEED: (2**63 - 1, 2**63 - 1),
    Kind.NUMBER: (-1.5, -1.5),
    Kind.TOKEN: (-1, -1),
    Kind.EARLY_STOPPING: (True, generation_pb2.EARLY_STOPPING_FIRST),
    Kind.TOKENS: ((1, 2), [1, 2]),
    Kind.LANGUAGE: ("fra_Latn", "fra_Latn"),
    Kind.TEXT: ("{}", "{}"),
    Kind.TEXTS: (("\n", "end"), ["\n", "end"]),
    Kind.LOGIT_BIAS: (
        {5: -1.0, 4: 2},
        [
            generation_pb2.LogitBias(token_id=5, bias=-1.0),
            generation_pb2.LogitBias(token_id=4, bias=2.0),
        ],
    ),
    Kind.WORDS: (["graph", (1, 2), " numbers"], ["graph", " numbers"]),
}


def test_text_prompt_and_every_option_are_sent(fake: FakeShaperouter, client: Client) -> None:
    options: Any = {option.name: VALUES[option.kind][0] for option in OPTIONS}
    fields = {option.name: VALUES[option.kind][1] for option in OPTIONS}
    assert options.keys() == GenerationOptions.__annotations__.keys()
    client.generate("TensorFlow is", model="demo", **options)
    assert fake.requests == [
        generation_pb2.GenerateRequest(
            model="demo",
            text="TensorFlow is",
            options=generation_pb2.GenerationOptions(
                **fields,
                bad_words_token_ids=[generation_pb2.TokenIds(ids=[1, 2])],
            ),
        )
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (False, generation_pb2.EARLY_STOPPING_HEURISTIC),
        (True, generation_pb2.EARLY_STOPPING_FIRST),
        ("never", generation_pb2.EARLY_STOPPING_NEVER),
    ],
)
def test_early_stopping_has_the_values_of_transformers(
    fake: FakeShaperouter, client: Client, value: Any, told: int
) -> None:
    client.generate("x", early_stopping=value)
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateRequest)
    assert request.options.early_stopping == told


def test_stop_may_be_one_string(fake: FakeShaperouter, client: Client) -> None:
    client.generate("x", stop="end")
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateRequest)
    assert request.options.stop == ["end"]


@pytest.mark.parametrize("prompt", [[3, 1, 2], (3, 1, 2), range(3)])
def test_token_ids_are_sent_unchanged(fake: FakeShaperouter, client: Client, prompt: Any) -> None:
    client.generate(prompt)
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateRequest)
    assert (request.HasField("text"), request.HasField("token_ids")) == (False, True)
    assert list(request.token_ids.ids) == list(prompt)


def test_omitted_and_none_options_are_absent_from_the_request(
    fake: FakeShaperouter, client: Client
) -> None:
    client.generate("x")
    client.generate("x", max_new_tokens=None, do_sample=None, temperature=None, seed=None)
    assert fake.requests[0] == fake.requests[1]
    assert isinstance(fake.requests[0], generation_pb2.GenerateRequest)
    assert fake.requests[0].options == generation_pb2.GenerationOptions()


def test_false_and_zero_are_sent(fake: FakeShaperouter, client: Client) -> None:
    client.generate("x", do_sample=False, seed=0, max_new_tokens=0, temperature=0)
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateRequest)
    for option in ("do_sample", "seed", "max_new_tokens", "temperature"):
        assert request.options.HasField(option)


def test_stream_sends_the_same_fields(fake: FakeShaperouter, client: Client) -> None:
    options: dict[str, Any] = {"model": "demo", "max_new_tokens": 3, "eos_token_ids": [4]}
    client.generate("x", **options)
    for _ in client.stream("x", **options):
        pass
    unary, stream = fake.requests
    assert unary.SerializeToString() == stream.SerializeToString()


@pytest.mark.parametrize("temperature", [math.nan, math.inf, -1.0, 0.0, 1e-300])
def test_limits_are_checked_by_the_service(
    fake: FakeShaperouter, client: Client, temperature: float
) -> None:
    client.generate("", temperature=temperature, max_new_tokens=-5, seed=-1)
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateRequest)
    assert (request.HasField("text"), request.HasField("token_ids")) == (True, False)
    assert request.options.temperature == pytest.approx(temperature, abs=0, nan_ok=True)
    assert request.options.max_new_tokens == -5


class Indexable:
    def __index__(self) -> int:
        return 9


def test_integers_of_other_types_are_accepted(fake: FakeShaperouter, client: Client) -> None:
    client.generate([Indexable()], seed=Indexable())  # type: ignore[list-item,arg-type]  # at run time
    (request,) = fake.requests
    assert isinstance(request, generation_pb2.GenerateRequest)
    assert (list(request.token_ids.ids), request.options.seed) == ([9], 9)


@pytest.mark.parametrize(
    ("arguments", "field", "part"),
    [
        ({"prompt": "a\ud800"}, "text", "character 1 is the lone surrogate U+D800"),
        ({"prompt": b"bytes"}, "prompt", "got bytes"),
        ({"prompt": None}, "prompt", "got NoneType"),
        ({"prompt": 7}, "prompt", "got int"),
        ({"prompt": {"a": 1}}, "prompt", "got dict"),
        ({"prompt": [1, 2**31]}, "token_ids.ids[1]", "32-bit integer, got 2147483648"),
        ({"prompt": [1, "2"]}, "token_ids.ids[1]", "must be an integer, got '2' (str)"),
        ({"prompt": [True]}, "token_ids.ids[0]", "must be an integer, got True (bool)"),
        ({"prompt": [1.0]}, "token_ids.ids[0]", "must be an integer, got 1.0 (float)"),
        ({"model": None}, "model", "must be a str"),
        ({"model": "\udcff"}, "model", "lone surrogate"),
        ({"max_new_tokens": -(2**31) - 1}, "options.max_new_tokens", "got -2147483649"),
        ({"max_new_tokens": "8"}, "options.max_new_tokens", "must be an integer, got '8'"),
        ({"max_new_tokens": 8.0}, "options.max_new_tokens", "must be an integer, got 8.0"),
        ({"max_new_tokens": math.nan}, "options.max_new_tokens", "must be an integer"),
        ({"do_sample": 1}, "options.do_sample", "must be True or False, got 1"),
        ({"do_sample": "no"}, "options.do_sample", "must be True or False"),
        ({"temperature": "0.5"}, "options.temperature", "must be a number, got '0.5'"),
        ({"temperature": True}, "options.temperature", "must be a number"),
        ({"temperature": [1]}, "options.temperature", "must be a number"),
        ({"temperature": 10**400}, "options.temperature", "64-bit float, got an integer of 1329"),
        ({"seed": 2**63}, "options.seed", "64-bit integer, got 9223372036854775808"),
        ({"seed": 0.5}, "options.seed", "must be an integer, got 0.5"),
        ({"eos_token_ids": 3}, "options.eos_token_ids", "must be integers, got 3"),
        ({"eos_token_ids": "3"}, "options.eos_token_ids", "must be integers, got '3'"),
        ({"eos_token_ids": [2**40]}, "options.eos_token_ids[0]", "got 1099511627776"),
        ({"top_k": 2.0}, "options.top_k", "must be an integer, got 2.0"),
        ({"top_p": "1"}, "options.top_p", "must be a number, got '1'"),
        ({"num_beams": True}, "options.num_beams", "must be an integer, got True"),
        ({"echo": 1}, "options.echo", "must be True or False, got 1"),
        ({"logprobs": True}, "options.logprobs", "must be an integer, got True"),
        ({"early_stopping": 1}, "options.early_stopping", 'False, True or "never", got 1'),
        ({"early_stopping": 0}, "options.early_stopping", "got 0"),
        ({"early_stopping": "first"}, "options.early_stopping", "got 'first' (str)"),
        ({"stop": 3}, "options.stop", "must be a list of strings, got 3"),
        ({"stop": ["a", 3]}, "options.stop[1]", "must be a str, got 3"),
        ({"stop": "\ud800"}, "options.stop[0]", "lone surrogate"),
        ({"bad_words": "word"}, "options.bad_words", "must be a list of words, got 'word'"),
        ({"bad_words": ["a", 3]}, "options.bad_words[1]", "must be integers, got 3"),
        ({"bad_words": [[1, "2"]]}, "options.bad_words[0][1]", "must be an integer, got '2'"),
        ({"logit_bias": [1]}, "options.logit_bias", "must be numbers by token id, got [1]"),
        ({"logit_bias": {"1": 2}}, "options.logit_bias[0].token_id", "must be an integer"),
        ({"logit_bias": {1: "2"}}, "options.logit_bias[0].bias", "must be a number, got '2'"),
        (
            {"timeout": math.nan},
            "timeout",
            "must be a number of seconds above 0, or infinity for no limit, got nan",
        ),
        (
            {"timeout": "3"},
            "timeout",
            "must be a number of seconds above 0, or infinity for no limit, got '3'",
        ),
    ],
)
@pytest.mark.parametrize("method", ["generate", "stream"])
def test_unsendable_option_is_refused_with_its_field(
    *,
    fake: FakeShaperouter,
    client: Client,
    method: str,
    arguments: dict[str, Any],
    field: str,
    part: str,
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(client, method)(**{"prompt": "x"} | arguments)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert part in violation.description
    assert str(caught.value) == f"{violation.field}: {violation.description}"
    assert not fake.requests


def test_misspelled_option_is_a_type_error_that_lists_the_options(client: Client) -> None:
    with pytest.raises(TypeError, match=r"unknown option 'max_tokens'.*max_new_tokens"):
        client.generate("x", max_tokens=3)  # type: ignore[call-arg]  # the mistake


def test_graphs_sends_its_filters(fake: FakeShaperouter, client: Client) -> None:
    client.graphs("demo", include_cold=True)
    assert [str(request).split() for request in fake.requests] == [
        ["model:", '"demo"', "include_cold:", "true"]
    ]


def test_decoder_prompt_is_sent_as_text_or_token_ids(fake: FakeShaperouter, client: Client) -> None:
    client.generate("translate: good", decoder_text="gut")
    with client.stream([5, 6], decoder_token_ids=(7, 8)) as stream:
        list(stream)
    first, second = fake.requests
    assert (first.text, first.decoder_text) == ("translate: good", "gut")
    assert not first.HasField("decoder_token_ids")
    assert (second.token_ids.ids, second.decoder_token_ids.ids) == ([5, 6], [7, 8])
    assert not second.HasField("decoder_text")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"decoder_text": 5}, "decoder_text: must be"),
        ({"decoder_token_ids": [1, "x"]}, r"decoder_token_ids.ids\[1\]: must be"),
        ({"decoder_token_ids": [2**31]}, r"decoder_token_ids.ids\[0\]: must fit"),
    ],
)
def test_unsendable_decoder_prompt_is_refused_with_its_field(
    client: Client, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        client.generate("x", **arguments)
