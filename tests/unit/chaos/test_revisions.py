"""Which revision of a model may answer when."""

from chaos.processes import Life
from chaos.revisions import LEARNING, SETTLING, Revisions, forgotten

ANSWERS = {"first": [1], "second": [2], "third": [3]}
OLD = -1000.0


def starting_with(present: str) -> Revisions:
    """Of a service whose processes are started with the first revision."""
    return Revisions(ANSWERS, present=present, given="first")


def test_before_any_load_only_the_present_revision_answers() -> None:
    assert starting_with("first").right(0.0, 1.0) == [[1]]


def test_while_a_revision_is_loaded_both_may_answer() -> None:
    revisions = starting_with("first")
    revisions.begin("second", 10.0)
    assert revisions.right(5.0, 9.0) == [[1]]
    assert revisions.right(5.0, 11.0) == [[1], [2]]


def test_a_replaced_revision_may_answer_requests_that_had_begun_or_soon_after() -> None:
    revisions = starting_with("first")
    revisions.begin("second", 10.0)
    revisions.loaded(12.0)
    assert [1] in revisions.right(12.0 + SETTLING, 13.0 + SETTLING)
    assert revisions.right(12.1 + SETTLING, 13.0 + SETTLING) == [[2]]


def test_a_refused_revision_may_not_answer_later() -> None:
    revisions = starting_with("first")
    revisions.begin("second", 10.0)
    revisions.refused(12.0)
    assert revisions.right(13.0 + SETTLING, 14.0 + SETTLING) == [[1]]


def test_a_load_with_an_unknown_end_leaves_both_until_a_later_one_ends_well() -> None:
    revisions = starting_with("first")
    revisions.begin("second", 10.0)
    assert revisions.right(900.0, 901.0) == [[1], [2]]
    revisions.begin("third", 1000.0)
    revisions.loaded(1001.0)
    assert revisions.right(1100.0, 1101.0) == [[3]]


def lives(*began: float, start: float = 1.0) -> list[Life]:
    """The starts of a process that serves `start` seconds after each."""
    return [Life(began=at, served=at + start) for at in (OLD, *began)]


def test_once_all_processes_are_new_the_revision_of_the_start_may_answer() -> None:
    revisions = starting_with("second")
    revisions.restarted([lives(100.0), lives(100.0 + LEARNING)])
    assert revisions.right(90.0, 100.0 + LEARNING) == [[1], [2]]
    assert revisions.right(90.0, 99.0 + LEARNING) == [[2]]
    # Until another one is loaded.
    revisions.begin("third", 200.0)
    revisions.loaded(201.0)
    revisions.restarted([lives(100.0, 202.0), lives(100.0 + LEARNING)])
    assert revisions.right(300.0, 301.0) == [[3]]


def test_a_load_is_forgotten_once_all_processes_have_been_started_after_it() -> None:
    restarts = [lives(100.0), lives(100.0 + LEARNING)]
    assert forgotten(restarts, 99.0) == 100.0 + LEARNING
    assert forgotten(restarts, 101.0) is None


def test_a_process_that_does_not_serve_yet_may_not_know_what_was_loaded() -> None:
    revisions = starting_with("second")
    slow = lives(100.0, start=50.0)
    revisions.restarted([slow, lives(140.0)])
    assert revisions.right(90.0, 140.0) == [[1], [2]]


def test_a_process_tells_the_others_what_was_loaded() -> None:
    revisions = starting_with("second")
    revisions.restarted([lives(100.0), lives(102.0 + LEARNING), lives(102.0)])
    assert revisions.right(90.0, 900.0) == [[2]]


def test_a_process_that_served_before_the_end_of_a_load_knows_it() -> None:
    revisions = starting_with("first")
    revisions.begin("second", 10.0)
    revisions.loaded(12.0)
    revisions.restarted([lives(13.0), lives(11.0)])
    assert revisions.right(13.0 + SETTLING, 900.0) == [[2]]


def test_a_process_that_was_only_starting_during_a_load_may_not_know_it() -> None:
    revisions = starting_with("first")
    revisions.begin("second", 10.0)
    revisions.loaded(12.0)
    revisions.restarted([lives(13.0), lives(11.0, start=5.0)])
    assert revisions.right(13.0 + SETTLING, 900.0) == [[1], [2]]
