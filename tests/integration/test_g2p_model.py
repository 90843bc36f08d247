"""The built-in T5 as users see it: a word in, its phonemes out, equal to the reference."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.service import GOLDENS, kept_compilations, serving
from shaperouter import Client

EXPECTED = json.loads((GOLDENS / "g2p.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        serving("--model=g2p", env=kept_compilations()) as service,
        Client(service.address) as client,
    ):
        yield client


@pytest.mark.parametrize("case", EXPECTED["cases"], ids=lambda case: case["name"])
def test_greedy_phonemes_equal_the_reference(client: Client, case: dict[str, Any]) -> None:
    found = client.generate(case["prompt_text"], max_new_tokens=case["max_new_tokens"])
    assert list(found.token_ids) == case["token_ids"]
    assert found.text == case["text"]


@pytest.mark.parametrize("case", EXPECTED["option_cases"], ids=lambda case: case["name"])
def test_pronunciations_of_beam_search_equal_the_reference(
    client: Client, case: dict[str, Any]
) -> None:
    found = client.generate(case["prompt_text"], **case["options"])
    assert [each.text for each in found.sequences] == [each["text"] for each in case["sequences"]]
    for sequence, expected in zip(found.sequences, case["sequences"], strict=True):
        assert sequence.score == pytest.approx(expected["score"], abs=1e-5)
