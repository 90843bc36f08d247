"""The number of proposals that a run's steps check follows how many were accepted."""

from shaperouter_service.decoding import MAX_PROPOSALS
from shaperouter_service.worker.speculation import MAX_PAUSE, MIN_PAUSE, START, ProposalLimit


def _fail(limit: ProposalLimit) -> None:
    while limit.value:
        limit.observe(tokens=1, proposed=limit.value, accepted=0)


def _pause(limit: ProposalLimit) -> int:
    """Number of tokens without proposals."""
    tokens = 0
    while not limit.value:
        limit.observe(tokens=1, proposed=0, accepted=0)
        tokens += 1
    return tokens


def test_a_run_checks_more_while_its_proposals_come() -> None:
    limit = ProposalLimit()
    assert limit.value == START
    for _ in range(3):
        limit.observe(tokens=5, proposed=4, accepted=3)
    assert limit.value == MAX_PROPOSALS


def test_a_run_checks_fewer_while_they_do_not() -> None:
    limit = ProposalLimit()
    limit.observe(tokens=1, proposed=8, accepted=1)
    assert limit.value == START // 2


def test_steps_without_proposals_change_nothing() -> None:
    limit = ProposalLimit()
    limit.observe(tokens=9, proposed=0, accepted=0)
    assert limit.value == START


def test_pauses_double_until_proposals_come() -> None:
    limit = ProposalLimit()
    pauses = []
    for _ in range(7):
        _fail(limit)
        pauses.append(_pause(limit))
    assert pauses == [16, 32, 64, 128, MAX_PAUSE, MAX_PAUSE, MAX_PAUSE]
    limit.observe(tokens=2, proposed=1, accepted=1)
    _fail(limit)
    assert _pause(limit) == MIN_PAUSE
