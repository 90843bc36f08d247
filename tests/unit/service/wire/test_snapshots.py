"""Snapshots have all deployments, which are translated only after a change."""

import pytest

from shaperouter_service.routing.deployments import Deployment, Revision
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.wire import snapshots
from shaperouter_service.wire.snapshots import SnapshotReader, SnapshotWriter


def deployed(*names: str, version: int = 1) -> list[Deployment]:
    """Deployments of revisions; each call makes other objects."""
    return [
        Deployment(
            name=name,
            version=version,
            revisions=[Revision.of(name, digest="0" * 64, location=name, share=1.0)],
        )
        for name in names
    ]


def snapshot(deployments: list[Deployment], *, warm: bool = False) -> Snapshot:
    return Snapshot(worker="worker-0", incarnation="1", warm=warm, deployments=deployments)


CHANGES = [
    deployed("a"),
    deployed("a", "b"),
    deployed("a", "b", version=2),
    deployed("b"),
    [],
    deployed("a"),
]


def test_each_change_of_the_deployments_reaches_the_reader() -> None:
    writer, reader = SnapshotWriter(), SnapshotReader()
    for deployments in CHANGES:
        read = reader.read(writer.write(snapshot(deployments)))
        assert list(read.deployments) == deployments


def test_a_reader_returns_deployments_that_have_not_changed_as_the_same_object() -> None:
    reader = SnapshotReader()
    first = reader.read(SnapshotWriter().write(snapshot(deployed("a", "b"))))
    again = reader.read(SnapshotWriter().write(snapshot(deployed("a", "b"), warm=True)))
    assert (first.warm, again.warm) == (False, True)
    assert again.deployments is first.deployments


def test_a_writer_translates_deployments_once_until_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    translated: list[int] = []
    translate = snapshots.deployments_to_message

    def count(deployments: list[Deployment]) -> object:
        translated.append(len(deployments))
        return translate(deployments)

    monkeypatch.setattr(snapshots, "deployments_to_message", count)
    writer = SnapshotWriter()
    for deployments in (deployed("a"), deployed("a"), deployed("a", "b"), deployed("a", "b")):
        message = writer.write(snapshot(deployments))
        assert [each.name for each in message.deployments] == [each.name for each in deployments]
    assert translated == [1, 2]
