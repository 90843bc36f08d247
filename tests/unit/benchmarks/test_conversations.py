"""The conversations of `make bench-conversations`, and the figures it reports."""

import itertools
from dataclasses import asdict

import pytest
from conversations.contestants import OURS, UNCACHED
from conversations.figures import Answered, Figures, firsts_by_number
from conversations.report import tables
from conversations.script import ANSWER_TOKENS, MAX_LENGTH, draw_turns, system_prompt

from common.checkpoint import END_TOKEN

SEED = [0, 1, 2]


def test_turns_and_answers_fit_into_the_model() -> None:
    for caller in range(8):
        history = 0
        for turn in draw_turns(SEED, caller, 30):
            history = (len(turn.opening) or history) + len(turn.user) + ANSWER_TOKENS
            assert history <= MAX_LENGTH


def test_a_conversation_ends_only_when_no_other_turn_fits() -> None:
    turns = draw_turns(SEED, 0, 30)
    history = 0
    for turn, following in itertools.pairwise(turns):
        history = (len(turn.opening) or history) + len(turn.user) + ANSWER_TOKENS
        if following.opening:
            assert history + 60 + ANSWER_TOKENS > MAX_LENGTH


def test_conversations_begin_with_the_system_prompt() -> None:
    openings = [turn.opening for turn in draw_turns(SEED, 3, 30) if turn.opening]

    assert len(openings) > 1
    assert all(opening[:256] == system_prompt() for opening in openings)


def test_callers_join_conversations_after_different_numbers_of_turns() -> None:
    firsts = [draw_turns(SEED, caller, 1)[0] for caller in range(4)]

    assert [turn.number for turn in firsts] == [1, 2, 3, 4]
    assert len({len(turn.opening) for turn in firsts}) == 4


def test_only_the_first_turn_does_not_count() -> None:
    turns = draw_turns(SEED, 5, 6)

    assert [turn.counts for turn in turns] == [False] + [True] * 6


def test_a_seed_always_gives_the_same_turns_and_another_one_others() -> None:
    assert draw_turns(SEED, 2, 10) == draw_turns(SEED, 2, 10)
    assert draw_turns(SEED, 2, 10) != draw_turns([0, 1, 3], 2, 10)


def test_the_token_that_ends_texts_is_never_said() -> None:
    said = {token for turn in draw_turns(SEED, 1, 30) for token in (*turn.opening, *turn.user)}

    assert END_TOKEN not in said


def _turn(**fields: object) -> Answered:
    known = {"number": 1, "prompt": 300, "tokens": 11, "sent": 0.0, "first": 0.2, "total": 0.7}
    return Answered(**(known | fields))


def test_the_first_token_is_no_part_of_the_time_of_later_ones() -> None:
    assert _turn(first=0.2, total=0.7).per_token == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("first", "total", "is_useful"), [(0.5, 1.4, True), (0.51, 1.4, False), (0.2, 1.3, False)]
)
def test_a_useful_turn_is_within_both_limits(
    *, first: float, total: float, is_useful: bool
) -> None:
    assert _turn(first=first, total=total).is_useful is is_useful


def test_figures_are_those_of_all_turns_of_a_round() -> None:
    turns = [
        _turn(sent=1.0, first=0.1, total=0.6, prompt=300, cached=150),
        _turn(sent=2.0, first=0.2, total=0.7, prompt=400, cached=400),
        _turn(sent=4.3, first=0.6, total=0.7, prompt=400, cached=0),
    ]

    assert asdict(Figures.of(turns)) == pytest.approx(
        {
            "first": 0.2,
            "first_p95": 0.6,
            "per_token": 0.05,
            "tokens_per_second": 33 / 4,
            "useful": 2 / 3,
            "useful_per_second": 2 / 4,
            "cached": 0.5,
        }
    )


def test_a_server_that_does_not_say_what_it_kept_has_no_such_share() -> None:
    assert Figures.of([_turn()]).cached is None


def test_medians_of_first_tokens_are_in_the_order_of_turns() -> None:
    turns = [
        _turn(number=7, first=0.4),
        _turn(number=2, first=0.1),
        _turn(number=7, first=0.2),
        _turn(number=7, first=0.3),
    ]

    assert list(firsts_by_number(turns).items()) == [(2, 0.1), (7, 0.3)]


def test_ratios_are_those_within_a_round() -> None:
    rounds = {
        OURS.entry.name: [[_turn(first=0.1)], [_turn(first=0.2)], [_turn(first=0.4)]],
        UNCACHED.entry.name: [[_turn(first=0.3)], [_turn(first=0.4)], [_turn(first=0.4)]],
    }

    _, ratios, _ = tables(rounds)

    assert ratios.rows[0][:2] == [UNCACHED.entry.label, "2.00 ±50%"]


def test_a_contestant_without_a_useful_turn_has_a_goodput_of_0() -> None:
    slow, useful = _turn(first=9.0, total=9.5), _turn()

    found, _ = tables({OURS.entry.name: [[slow], [slow], [useful]]})

    assert found.rows[0][5:7] == ["0", "0.00"]
