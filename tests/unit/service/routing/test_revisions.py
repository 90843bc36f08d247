"""Which revision a request gets, and which orders workers get."""

from collections import Counter

import pytest

from shaperouter_service.routing.deployments import Deployment, Revision, newest, public_name
from shaperouter_service.routing.revisions import Revisions


def revision(digest: str, *, share: float = 1.0) -> Revision:
    return Revision.of("tiny", digest=16 * digest, location=f"tiny-{digest}", share=share)


def deployment(version: int, *revisions: Revision) -> Deployment:
    return Deployment(name="tiny", version=version, revisions=revisions)


@pytest.fixture
def revisions() -> Revisions:
    return Revisions(["tiny", "other"])


def test_workers_call_a_revision_by_its_name_and_digest() -> None:
    assert revision("a").model == "tiny@aaaaaaaaaaaa"
    assert public_name("tiny@aaaaaaaaaaaa") == public_name("tiny") == "tiny"


def test_without_a_deployment_a_name_is_what_workers_started_with(revisions: Revisions) -> None:
    assert revisions.names == ("other", "tiny")
    assert revisions.pick("tiny") == "tiny"
    assert revisions.orders("router").deployments == []


def test_a_deployment_is_followed_only_after_it_was_told(revisions: Revisions) -> None:
    revisions.tell([deployment(1, revision("a"))])
    assert revisions.pick("tiny") == "tiny"
    (pending,) = revisions.pending()
    revisions.follow(pending)
    assert revisions.pending() == []
    assert revisions.pick("tiny") == "tiny@aaaaaaaaaaaa"


def test_a_name_without_revisions_is_not_served(revisions: Revisions) -> None:
    revisions.follow(deployment(1))
    assert revisions.names == ("other",)
    revisions.follow(deployment(2, revision("a")))
    assert revisions.names == ("other", "tiny")


def test_the_highest_version_counts_in_whatever_order_it_comes() -> None:
    old, new = deployment(1, revision("a")), deployment(2, revision("b"))
    assert newest({}, [new, old]) == newest({"tiny": old}, [new]) == {"tiny": new}


def test_two_deployments_of_one_version_are_decided_alike_everywhere() -> None:
    one, other = deployment(1, revision("a")), deployment(1, revision("b"))
    assert newest({}, [one, other]) == newest({}, [other, one])


def test_a_retired_revision_is_held_until_its_last_request_has_ended(revisions: Revisions) -> None:
    released: list[None] = []
    revisions.on_release(lambda: released.append(None))
    with revisions.using("tiny") as first, revisions.using("tiny"):
        revisions.follow(deployment(1, revision("a")))
        assert [each.model for each in revisions.orders("router").held] == [first] == ["tiny"]
        assert not released
    assert revisions.orders("router").held == []
    assert len(released) == 1


def test_requests_are_shared_as_the_deployment_says(revisions: Revisions) -> None:
    revisions.follow(deployment(1, revision("a", share=0.9), revision("b", share=0.1)))
    picked = Counter(revisions.pick("tiny") for _ in range(2000))
    assert revisions.main("tiny") == "tiny@aaaaaaaaaaaa"
    assert 100 < picked["tiny@bbbbbbbbbbbb"] < 300


def test_a_revision_without_a_share_gets_no_request(revisions: Revisions) -> None:
    revisions.follow(deployment(1, revision("a"), revision("b", share=0.0)))
    assert {revisions.pick("tiny") for _ in range(100)} == {"tiny@aaaaaaaaaaaa"}
    assert revisions.pick("tiny@bbbbbbbbbbbb") == "tiny@bbbbbbbbbbbb"
    assert revisions.is_known("tiny@bbbbbbbbbbbb")
