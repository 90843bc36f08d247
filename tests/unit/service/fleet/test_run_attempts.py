"""A run's attempts on workers: wherever it is interrupted, the next worker completes it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import LADDERS, MODEL, option
from shaperouter_service.fleet.link import Loss
from shaperouter_service.fleet.run_attempts import RunAttempts
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

# Tokens that a worker generates before it is lost, often none, and how it is lost.
losses = st.lists(
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
    """All tokens of a run: up to an end token somewhere, or as many as allowed."""
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


@given(losses=losses, end=st.none() | st.integers(0, NEW_TOKENS - 1))
def test_every_worker_gets_the_request_with_the_tokens_there_are_until_none_is_missing(
    losses: list[tuple[int, Loss]], end: int | None
) -> None:
    attempts, expected = RunAttempts(request()), tokens_until(end)
    for count, loss in losses:
        rest = attempts.next_request(option())
        there = len(rest.generated_token_ids)
        assert list(rest.generated_token_ids) == expected[:there]
        assert rest.resumed == (there > 0)
        unchanged = dataclasses.replace(
            rest, generated_token_ids=(), lane_beams=0, resumed=False, suspect=False
        )
        assert unchanged == request()
        for token in expected[there:][:count]:
            attempts.record(NewTokens([token]))
        attempts.record_loss("w", loss)
        if attempts.completion():
            assert attempts.token_ids == expected
            return
    assert attempts.token_ids == expected[: len(attempts.token_ids)]
    assert len(attempts.token_ids) < len(expected)


@given(losses=losses)
def test_losses_are_counted_for_the_token_they_happened_at(losses: list[tuple[int, Loss]]) -> None:
    attempts, expected = RunAttempts(request()), tokens_until(None)
    lived: list[tuple[int, Loss]] = []
    for count, loss in losses:
        new = expected[len(attempts.token_ids) :][:count]
        attempts.record(NewTokens(new))
        attempts.record_loss("w", loss)
        lived.append((len(new), loss))
        assert attempts.lost_here == lost_at_the_end(lived)


def test_a_run_of_which_only_the_word_of_the_end_was_lost_has_ended() -> None:
    attempts = RunAttempts(request())
    attempts.record(NewTokens([5, EOS]))
    attempts.record_loss("w", Loss.LOST)
    end = attempts.completion()
    assert end is not None
    assert end.finish_reason is FinishReason.EOS


def token(token_id: int) -> NewTokens:
    return NewTokens([token_id])


def test_a_run_is_a_suspect_after_two_losses_at_a_token_until_it_gets_further() -> None:
    attempts, suspected = RunAttempts(request()), []
    for _ in range(3):
        suspected.append(attempts.next_request(option()).suspect)
        attempts.record_loss("w", Loss.LOST)
    attempts.record(token(0))
    attempts.record_loss("w", Loss.LOST)
    suspected.append(attempts.next_request(option()).suspect)
    assert suspected == [False, False, True, False]


@pytest.mark.parametrize("loss", [Loss.LOST, Loss.HUNG])
def test_a_run_that_two_workers_were_lost_with_in_isolation_is_the_cause(loss: Loss) -> None:
    attempts, caused = RunAttempts(request()), []
    for _ in range(2):
        attempts.record_loss("w", loss)
    for _ in range(2):
        caused.append(attempts.is_cause)
        attempts.record(Isolated())
        attempts.record_loss("w", loss)
    assert [*caused, attempts.is_cause] == [False, False, True]


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
    attempts = RunAttempts(request())
    for _ in range(5):
        attempts.record(Isolated())
        attempts.record(event)
        attempts.record_loss("w", Loss.LOST)
    assert not attempts.is_cause


@given(losses=losses)
def test_a_run_that_was_never_isolated_is_never_the_cause(losses: list[tuple[int, Loss]]) -> None:
    attempts = RunAttempts(request())
    for made, loss in losses:
        for token_id in range(made):
            attempts.record(token(token_id))
        attempts.record_loss("w", loss)
        assert not attempts.is_cause


@pytest.mark.parametrize("loss", Loss)
def test_beam_search_that_a_worker_was_lost_with_goes_on_as_what_had_a_slot(loss: Loss) -> None:
    attempts = RunAttempts(request(num_beams=4))
    assert not attempts.next_request(option()).resumed
    attempts.record_loss("w", loss)
    # A draining worker returns runs without tokens.
    assert attempts.next_request(option()).resumed == (loss is not Loss.DRAINING)


def test_what_is_left_of_a_run_has_its_source_and_the_tokens_there_are() -> None:
    attempts = RunAttempts(dataclasses.replace(request(), source_token_ids=[5, 6, 7]))
    attempts.record(NewTokens([8, 9]))
    remaining = attempts.remaining()
    assert (remaining.source_tokens, remaining.prompt_tokens, remaining.new_tokens) == (
        3,
        5,
        NEW_TOKENS - 2,
    )
    rest = attempts.next_request(option())
    assert (list(rest.source_token_ids), list(rest.generated_token_ids)) == ([5, 6, 7], [8, 9])
