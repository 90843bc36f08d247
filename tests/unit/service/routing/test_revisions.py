"""Which revision a request gets, and which orders workers get."""

from collections import Counter
from dataclasses import replace

import pytest

from shaperouter_service.routing.deployments import (
    Deployment,
    Revision,
    Target,
    newest,
    public_name,
)
from shaperouter_service.routing.revisions import Revisions


def revision(digest: str, *, share: float = 1.0) -> Revision:
    return Revision.of("tiny", digest=16 * digest, location=f"tiny-{digest}", share=share)


def deployment(version: int, *revisions: Revision) -> Deployment:
    return Deployment(name="tiny", version=version, revisions=revisions)


def pick(revisions: Revisions, request_id: str = "request") -> str:
    return revisions.pick("tiny", request_id)


@pytest.fixture
def revisions() -> Revisions:
    return Revisions(["tiny", "other"])


def test_workers_call_a_revision_by_its_name_and_digest() -> None:
    assert revision("a").model == "tiny@aaaaaaaaaaaa"
    assert public_name("tiny@aaaaaaaaaaaa") == public_name("tiny") == "tiny"


def test_without_a_deployment_a_name_is_what_workers_started_with(revisions: Revisions) -> None:
    assert revisions.names == ("other", "tiny")
    assert pick(revisions) == "tiny"
    assert revisions.orders("router").deployments == []


def test_a_deployment_is_followed_only_after_it_was_told(revisions: Revisions) -> None:
    revisions.tell([deployment(1, revision("a"))])
    assert pick(revisions) == "tiny"
    (pending,) = revisions.pending()
    revisions.follow(pending)
    assert revisions.pending() == []
    assert pick(revisions) == "tiny@aaaaaaaaaaaa"


def test_a_name_without_revisions_is_not_served(revisions: Revisions) -> None:
    revisions.follow(deployment(1))
    assert revisions.names == ("other",)
    revisions.follow(deployment(2, revision("a")))
    assert revisions.names == ("other", "tiny")


def test_the_highest_version_counts_in_whatever_order_it_comes() -> None:
    old, new = deployment(1, revision("a")), deployment(2, revision("b"))
    assert newest({}, [new, old]) == newest({"tiny": old}, [new]) == {"tiny": new}


@pytest.mark.parametrize(
    "other",
    [
        deployment(1, revision("b")),
        deployment(1, revision("a", share=0.5)),
        deployment(1, replace(revision("a"), digest=17 * "a")),
        deployment(1, replace(revision("a"), location="copy")),
        replace(deployment(1, revision("a")), everywhere=True),
        replace(deployment(1, revision("a")), on_demand=True),
    ],
    ids=str,
)
def test_two_deployments_of_one_version_are_decided_alike_everywhere(other: Deployment) -> None:
    one = deployment(1, revision("a"))
    assert newest({}, [one, other]) == newest({}, [other, one])


def test_a_retired_revision_is_held_until_its_last_request_has_ended(revisions: Revisions) -> None:
    released: list[None] = []
    revisions.on_release(lambda: released.append(None))
    first = pick(revisions)
    with revisions.using(first), revisions.using(first):
        revisions.follow(deployment(1, revision("a")))
        assert [each.model for each in revisions.orders("router").held] == [first] == ["tiny"]
        assert not released
    assert revisions.orders("router").held == []
    assert len(released) == 1


def test_requests_are_shared_as_the_deployment_says(revisions: Revisions) -> None:
    revisions.follow(deployment(1, revision("a", share=0.9), revision("b", share=0.1)))
    picked = Counter(pick(revisions, f"request-{number}") for number in range(2000))
    assert revisions.main("tiny") == "tiny@aaaaaaaaaaaa"
    assert 100 < picked["tiny@bbbbbbbbbbbb"] < 300


def test_a_request_gets_the_same_revision_from_every_router() -> None:
    routers = Revisions(["tiny"]), Revisions(["tiny"])
    for each in routers:
        each.follow(deployment(1, revision("a", share=0.5), revision("b", share=0.5)))
    for number in range(100):
        assert len({pick(each, f"request-{number}") for each in routers}) == 1


def test_a_growing_canary_keeps_the_ids_that_it_had(revisions: Revisions) -> None:
    had: set[str] = set()
    for version, share in enumerate((0.1, 0.3, 0.7), start=1):
        stable, canary = revision("a", share=1 - share), revision("b", share=share)
        revisions.follow(deployment(version, stable, canary))
        requests = (f"request-{number}" for number in range(500))
        has = {each for each in requests if pick(revisions, each) == canary.model}
        assert had < has
        had = has


def test_a_revision_that_cannot_serve_gets_no_request_if_another_can(revisions: Revisions) -> None:
    stable, canary = revision("a", share=0.5), revision("b", share=0.5)
    revisions.follow(deployment(1, stable, canary))
    for can_serve in (stable, canary):
        picked = {
            revisions.pick("tiny", f"request-{number}", can_serve.model.__eq__)
            for number in range(50)
        }
        assert picked == {can_serve.model}
    assert revisions.pick("tiny", "request", lambda _: False) in {stable.model, canary.model}


def test_a_revision_without_a_share_gets_no_request(revisions: Revisions) -> None:
    revisions.follow(deployment(1, revision("a"), revision("b", share=0.0)))
    assert {pick(revisions, f"{number}") for number in range(100)} == {"tiny@aaaaaaaaaaaa"}
    assert revisions.pick("tiny@bbbbbbbbbbbb", "1") == "tiny@bbbbbbbbbbbb"
    assert revisions.is_known("tiny@bbbbbbbbbbbb")


def test_the_models_and_the_revisions_of_a_request_are_chosen_independently() -> None:
    aliases = {"chat": [Target(model="tiny", share=0.5), Target(model="other", share=0.5)]}
    revisions = Revisions(["tiny", "other"], aliases)
    revisions.follow(deployment(1, revision("a", share=0.5), revision("b", share=0.5)))
    requests = [f"request-{number}" for number in range(200)]
    tiny = [each for each in requests if revisions.pick("chat", each) == "tiny"]
    assert 60 < len(tiny) < 140
    assert 20 < sum(pick(revisions, each) == "tiny@aaaaaaaaaaaa" for each in tiny) < 80


def test_an_alias_of_the_start_can_be_changed_and_removed() -> None:
    revisions = Revisions(["tiny", "other"], {"chat": [Target(model="tiny", share=1.0)]})
    assert revisions.names == ("other", "tiny")
    assert revisions.main("chat") == "tiny"
    changed = Deployment(name="chat", version=1, targets=[Target(model="other", share=1.0)])
    revisions.follow(changed)
    assert revisions.main("chat") == "other"
    revisions.follow(Deployment(name="chat", version=2))
    assert revisions.aliases == {}
