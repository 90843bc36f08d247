"""Which revision of a model may answer when."""

from chaos.revisions import SETTLING, Revisions

ANSWERS = {"first": [1], "second": [2], "third": [3]}


def test_before_any_load_only_the_present_revision_answers() -> None:
    assert Revisions(ANSWERS, "first").right(0.0, 1.0) == [[1]]


def test_while_a_revision_is_loaded_both_may_answer() -> None:
    revisions = Revisions(ANSWERS, "first")
    revisions.begin("second", 10.0)
    assert revisions.right(5.0, 9.0) == [[1]]
    assert revisions.right(5.0, 11.0) == [[1], [2]]


def test_a_replaced_revision_may_answer_requests_that_had_begun_or_soon_after() -> None:
    revisions = Revisions(ANSWERS, "first")
    revisions.begin("second", 10.0)
    revisions.loaded(12.0)
    assert [1] in revisions.right(12.0 + SETTLING, 13.0 + SETTLING)
    assert revisions.right(12.1 + SETTLING, 13.0 + SETTLING) == [[2]]


def test_a_refused_revision_may_not_answer_later() -> None:
    revisions = Revisions(ANSWERS, "first")
    revisions.begin("second", 10.0)
    revisions.refused(12.0)
    assert revisions.right(13.0 + SETTLING, 14.0 + SETTLING) == [[1]]


def test_a_load_with_an_unknown_end_leaves_both_until_a_later_one_ends_well() -> None:
    revisions = Revisions(ANSWERS, "first")
    revisions.begin("second", 10.0)
    assert revisions.right(900.0, 901.0) == [[1], [2]]
    revisions.begin("third", 1000.0)
    revisions.loaded(1001.0)
    assert revisions.right(1100.0, 1101.0) == [[3]]
