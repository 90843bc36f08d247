"""What callers see is right, refused with a reason, or a defect."""

from typing import Any

import pytest

from chaos.faults import FaultKind
from chaos.judge import AFTERMATH, Disturbance, Outcome, Refusal, Rules, Verdict, judge

RIGHT, REFUSED, DEFECT = Verdict.RIGHT, Verdict.REFUSED, Verdict.DEFECT
TOKENS = [[1, 2, 3], [4, 5]]
STREAM = [1, 2, 3, 4]
BOUND = 100.0


def verdict(rules: Rules, *disturbances: Disturbance, took: float = 1.0, **seen: Any) -> Verdict:
    outcome = Outcome(sample="greedy", began=50.0, ended=50.0 + took, **seen)
    return judge(outcome, rules, disturbances, bound=BOUND).verdict


@pytest.mark.parametrize(
    ("expected", "answer", "found"),
    [
        (TOKENS, [[1, 2, 3], [4, 5]], RIGHT),
        (TOKENS, [[1, 2, 3], [4, 6]], DEFECT),
        (TOKENS, [[1, 2, 3]], DEFECT),
        ({"y": [0.5, 2.0]}, {"y": [0.500001, 2.0]}, RIGHT),
        ({"y": [0.5, 2.0]}, {"y": [0.51, 2.0]}, DEFECT),
        ({"y": [0.5]}, {"z": [0.5]}, DEFECT),
        ("text", "tex", DEFECT),
    ],
)
def test_an_answer_is_right_only_if_it_is_the_expected_one(
    expected: Any, answer: Any, found: Verdict
) -> None:
    assert verdict(Rules(expected=expected), answer=answer) is found


@pytest.mark.parametrize(("answer", "found"), [([1, 2], RIGHT), ([3, 4], RIGHT), ([1, 4], DEFECT)])
def test_while_revisions_are_switched_an_answer_is_of_one_of_them(
    answer: list[int], found: Verdict
) -> None:
    rules = Rules(expected=[1, 2], others=([3, 4],))
    assert verdict(rules, answer=answer) is found
    cut = Refusal(code="UNAVAILABLE", reason="stopping", retry_after=0.5)
    expected = DEFECT if found is DEFECT else REFUSED
    assert verdict(rules, part=answer, refusal=cut) is expected


@pytest.mark.parametrize(("code", "found"), [("NOT_FOUND", REFUSED), ("INTERNAL", DEFECT)])
def test_a_request_may_be_refused_with_the_codes_of_its_rules_and_a_reason(
    code: str, found: Verdict
) -> None:
    rules = Rules(expected=1, refusable={"NOT_FOUND"})
    assert verdict(rules, refusal=Refusal(code=code, reason="no such model")) is found
    assert verdict(rules, refusal=Refusal(code=code, reason="")) is DEFECT


def test_an_answer_after_the_bound_is_a_defect() -> None:
    assert verdict(Rules(expected=1), answer=1, took=BOUND + 1) is DEFECT


@pytest.mark.parametrize(("part", "found"), [([1, 2], RIGHT), ([], RIGHT), ([1, 3], DEFECT)])
def test_a_cancelled_request_has_begun_as_the_whole_answer_does(
    part: list[int], found: Verdict
) -> None:
    assert verdict(Rules(expected=STREAM, cancelled=True), part=part) is found


@pytest.mark.parametrize(
    ("refusal", "found"),
    [
        (Refusal(code="RESOURCE_EXHAUSTED", reason="full", retry_after=1.0), REFUSED),
        (Refusal(code="RESOURCE_EXHAUSTED", reason="full"), DEFECT),
        (Refusal(code="RESOURCE_EXHAUSTED", reason="", retry_after=1.0), DEFECT),
        (Refusal(code="UNAVAILABLE", reason="stopping", retry_after=0.5), REFUSED),
        (Refusal(code="INTERNAL", reason="a defect", retry_after=0.5), DEFECT),
        (Refusal(code="UNAUTHENTICATED", reason="unknown token"), DEFECT),
        (Refusal(code="DEADLINE_EXCEEDED", reason="nobody answered"), DEFECT),
        (Refusal(code="DEADLY_REQUEST", reason="workers died"), DEFECT),
    ],
)
def test_a_refusal_needs_a_reason_and_a_hint_when_to_try_again(
    refusal: Refusal, found: Verdict
) -> None:
    assert verdict(Rules(expected=STREAM), refusal=refusal) is found


def test_a_refusal_after_wrong_tokens_is_a_defect() -> None:
    refusal = Refusal(code="UNAVAILABLE", reason="stopping", retry_after=0.5)
    assert verdict(Rules(expected=STREAM), refusal=refusal, part=[2]) is DEFECT


def test_a_request_with_a_deadline_of_its_own_may_pass_it() -> None:
    refusal = Refusal(code="DEADLINE_EXCEEDED", reason="it waited for a slot")
    assert verdict(Rules(expected=STREAM, deadline=0.5), refusal=refusal) is RIGHT


def test_only_a_deadly_request_is_refused_as_the_cause_and_it_is_never_answered() -> None:
    rules = Rules(expected=None, deadly=True)
    refusal = Refusal(code="DEADLY_REQUEST", reason="workers died")
    assert verdict(rules, refusal=refusal) is RIGHT
    assert verdict(rules, answer=None) is DEFECT


@pytest.mark.parametrize(
    ("kind", "ended", "found"),
    [
        (FaultKind.KILL_ROUTER, 50.5, REFUSED),
        (FaultKind.KILL_ROUTER, 50.0 - AFTERMATH, REFUSED),
        (FaultKind.KILL_ROUTER, 49.0 - AFTERMATH, DEFECT),
        (FaultKind.KILL_WORKER, 50.5, DEFECT),
    ],
)
def test_a_broken_connection_is_excused_by_a_fault_near_the_caller_alone(
    kind: FaultKind, ended: float, found: Verdict
) -> None:
    disturbance = Disturbance(kind=kind, began=ended, ended=ended)
    refusal = Refusal(code="UNAVAILABLE", reason="connection lost", connection=True)
    assert verdict(Rules(expected=STREAM), disturbance, refusal=refusal) is found


@pytest.mark.parametrize(
    ("kind", "found"), [(FaultKind.TEAR_TOKENS, REFUSED), (FaultKind.KILL_ROUTER, DEFECT)]
)
def test_a_renewed_token_may_be_unknown_only_while_its_file_cannot_be_read(
    kind: FaultKind, found: Verdict
) -> None:
    unknown = Refusal(code="UNAUTHENTICATED", reason="unknown token")
    disturbance = Disturbance(kind=kind, began=40.0, ended=49.0)
    assert verdict(Rules(expected=1), disturbance, refusal=unknown) is found
