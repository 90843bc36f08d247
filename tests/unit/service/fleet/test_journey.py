"""A run's way over workers: wherever it is cut off, it goes on with what is missing, and ends."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import LADDERS, MODEL, option
from shaperouter_service.fleet.journey import Journey
from shaperouter_service.fleet.link import Loss
from shaperouter_service.generation.resolution import neutral_options
from shaperouter_service.generation.run_events import (
    FinishReason,
    Isolated,
    NewTokens,
    RunEvent,
    Stalled,
)
from shaperouter_service.generation.run_request import RunRequest

EOS = 999
NEW_TOKENS = 12

# What a worker gives before it is lost, in tokens, often none, and how it is.
lives = st.lists(
    st.tuples(st.just(0) | st.integers(0, NEW_TOKENS), st.sampled_from(Loss)), max_size=12
)


def request(num_beams: int = 1) -> RunRequest:
    return RunRequest(
        request_id="r",
        model=MODEL,
        token_ids=[3, 1, 2],
        options=neutral_options(
            max_new_tokens=NEW_TOKENS, num_beams=num_beams, seed=4, eos_token_ids=[EOS]
        ),
    )


def tokens_until(end: int | None) -> list[int]:
    """All that a run makes: an end token in some place, or as many as there may be."""
    tokens = list(range(NEW_TOKENS))
    return tokens if end is None else [*tokens[:end], EOS]


def lost_at_the_end(lived: list[tuple[int, Loss]]) -> int:
    """How many of some workers were lost after the last token that any of them made."""
    count = 0
    for made, loss in reversed(lived):
        # One that gave the run back was not lost.
        count += loss is not Loss.DRAINING
        if made:
            break
    return count


@given(lives=lives, end=st.none() | st.integers(0, NEW_TOKENS - 1))
def test_every_worker_gets_the_request_with_the_tokens_there_are_until_none_is_missing(
    lives: list[tuple[int, Loss]], end: int | None
) -> None:
    journey, expected = Journey(request()), tokens_until(end)
    for count, loss in lives:
        rest = journey.rest(option())
        there = len(rest.generated_token_ids)
        assert list(rest.generated_token_ids) == expected[:there]
        assert rest.resumed == (there > 0)
        unchanged = dataclasses.replace(
            rest, generated_token_ids=(), lane_beams=0, resumed=False, suspect=False
        )
        assert unchanged == request()
        for token in expected[there:][:count]:
            journey.got(NewTokens([token]))
        journey.interrupted("w", loss)
        if journey.end():
            assert journey.token_ids == expected
            return
    assert journey.token_ids == expected[: len(journey.token_ids)]
    assert len(journey.token_ids) < len(expected)


@given(lives=lives)
def test_losses_are_counted_for_the_token_they_happened_at(lives: list[tuple[int, Loss]]) -> None:
    journey, expected = Journey(request()), tokens_until(None)
    lived: list[tuple[int, Loss]] = []
    for count, loss in lives:
        new = expected[len(journey.token_ids) :][:count]
        journey.got(NewTokens(new))
        journey.interrupted("w", loss)
        lived.append((len(new), loss))
        assert journey.lost_here == lost_at_the_end(lived)


def test_a_run_of_which_only_the_word_of_the_end_was_lost_has_ended() -> None:
    journey = Journey(request())
    journey.got(NewTokens([5, EOS]))
    journey.interrupted("w", Loss.LOST)
    end = journey.end()
    assert end is not None
    assert end.finish_reason is FinishReason.EOS


def token(token_id: int) -> NewTokens:
    return NewTokens([token_id])


def test_a_run_is_a_suspect_after_two_losses_at_a_token_until_it_gets_further() -> None:
    journey, suspected = Journey(request()), []
    for _ in range(3):
        suspected.append(journey.rest(option()).suspect)
        journey.interrupted("w", Loss.LOST)
    journey.got(token(0))
    journey.interrupted("w", Loss.LOST)
    suspected.append(journey.rest(option()).suspect)
    assert suspected == [False, False, True, False]


@pytest.mark.parametrize("loss", [Loss.LOST, Loss.HUNG])
def test_a_run_that_two_workers_were_lost_with_in_isolation_is_the_cause(loss: Loss) -> None:
    journey, caused = Journey(request()), []
    for _ in range(2):
        journey.interrupted("w", loss)
    for _ in range(2):
        caused.append(journey.is_cause)
        journey.got(Isolated())
        journey.interrupted("w", loss)
    assert [*caused, journey.is_cause] == [False, False, True]


@pytest.mark.parametrize(
    "event",
    [
        token(0),
        Stalled(LADDERS.first_decode(MODEL, beams=1)),
    ],
    ids=["a token", "a stall"],
)
def test_what_ends_an_isolation_clears_a_run_of_what_comes_later(
    event: RunEvent,
) -> None:
    journey = Journey(request())
    for _ in range(5):
        journey.got(Isolated())
        journey.got(event)
        journey.interrupted("w", Loss.LOST)
    assert not journey.is_cause


@given(lives=lives)
def test_a_run_that_was_never_isolated_is_never_the_cause(lives: list[tuple[int, Loss]]) -> None:
    journey = Journey(request())
    for made, loss in lives:
        for token_id in range(made):
            journey.got(token(token_id))
        journey.interrupted("w", loss)
        assert not journey.is_cause


@pytest.mark.parametrize("loss", Loss)
def test_beam_search_that_a_worker_was_lost_with_goes_on_as_what_had_a_slot(loss: Loss) -> None:
    journey = Journey(request(num_beams=4))
    assert not journey.rest(option()).resumed
    journey.interrupted("w", loss)
    # Who drains gives back what has none.
    assert journey.rest(option()).resumed == (loss is not Loss.DRAINING)


def test_what_is_left_of_a_run_has_its_source_and_the_tokens_there_are() -> None:
    journey = Journey(dataclasses.replace(request(), source_token_ids=[5, 6, 7]))
    journey.got(NewTokens([8, 9]))
    ask = journey.ask()
    assert (ask.source_tokens, ask.prompt_tokens, ask.new_tokens) == (3, 5, NEW_TOKENS - 2)
    rest = journey.rest(option())
    assert (list(rest.source_token_ids), list(rest.generated_token_ids)) == ([5, 6, 7], [8, 9])
