"""The table of options, and what derives from it without an example of its own."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.requests import ANSWERING, prepared, violations, with_text
from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.option import NO_TOKEN, Kind, ModelLimit, Needs, Option
from shaperouter_service.generation.option_table import OPTIONS

RANGED = [option for option in OPTIONS.values() if option.range is not None]


def high(option: Option) -> float | None:
    """The upper end of an option's range for the model of these tests."""
    assert option.range
    match option.range.high:
        case ModelLimit.VOCABULARY:
            return ANSWERING.vocab_size
        case ModelLimit.BEAMS:
            return 4
        case end:
            return end


def outside(option: Option) -> list[Any]:
    """Values just outside of an option's range."""
    assert option.range
    integral = option.kind is not Kind.NUMBER
    low, top = option.range.low, high(option)
    values: list[Any] = [low if option.range.above else low - 1 if integral else low - 1e-9]
    if top is not None and top < 2**63 - 1:
        values.append(top if option.range.below else top + 1 if integral else top * (1 + 1e-9))
    return values if integral else [*values, math.nan]


def test_each_field_of_the_message_has_a_row() -> None:
    fields = [field.name for field in generation_pb2.GenerationOptions.DESCRIPTOR.fields]
    assert sorted(OPTIONS) == sorted(fields)


@pytest.mark.parametrize("option", OPTIONS.values(), ids=list(OPTIONS))
def test_a_row_says_what_is_needed(option: Option) -> None:
    assert option.help.endswith(".")
    if option.on_device:
        assert option.neutral is not None
    if option.needs is not None:
        assert option.neutral is not None
    numeric = option.kind in (Kind.COUNT, Kind.SEED, Kind.NUMBER)
    assert (option.range is not None) == numeric
    limited = (Kind.TEXT, Kind.TOKENS, Kind.TEXTS, Kind.LOGIT_BIAS, Kind.WORDS, Kind.RUNS)
    assert (option.max_items > 0) == (option.kind in limited)


@pytest.mark.parametrize(
    ("option", "value"),
    [(option, value) for option in RANGED for value in outside(option)],
    ids=lambda value: value.name if isinstance(value, Option) else str(value),
)
def test_a_value_outside_of_its_range_is_refused(option: Option, value: Any) -> None:
    beams = {"num_beams": 2} if option.needs is Needs.BEAMS else {}
    request = with_text("x", **beams)
    setattr(request.options, option.name, value)
    (violation,) = violations(request, ANSWERING)
    assert violation.field == f"options.{option.name}"
    assert f"{option.range and option.range.low:g}" in violation.description
    assert "got" in violation.description


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if o.kind is Kind.TOKEN])
@pytest.mark.parametrize("token", [-2, 100])
def test_a_token_of_no_vocabulary_is_refused(name: str, token: int) -> None:
    (violation,) = violations(with_text("x", **{name: token}))
    assert violation.field == f"options.{name}"
    assert "0 to 99" in violation.description
    assert f"got {token}" in violation.description


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if o.kind is Kind.TOKEN])
@pytest.mark.parametrize("token", [NO_TOKEN, 0, 99])
def test_a_token_may_be_any_of_the_vocabulary_or_none(name: str, token: int) -> None:
    assert prepared(with_text("x", **{name: token}))


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if o.needs is Needs.SAMPLING])
def test_an_option_of_sampling_implies_it_and_contradicts_its_absence(name: str) -> None:
    given = {name: OPTIONS[name].neutral}
    assert prepared(with_text("x", **given)).options["do_sample"]
    (violation,) = violations(with_text("x", **given, do_sample=False))
    assert violation.field == f"options.{name}"
    assert "contradicts do_sample = false" in violation.description


@pytest.mark.parametrize("name", [n for n, o in OPTIONS.items() if o.needs is Needs.ENCODER])
def test_an_option_about_the_source_needs_an_encoder(name: str) -> None:
    given = {name: OPTIONS[name].neutral}
    assert prepared(with_text("x", **given), ANSWERING)
    (violation,) = violations(with_text("x", **given))
    assert violation.field == f"options.{name}"
    assert "model tiny has no encoder" in violation.description
