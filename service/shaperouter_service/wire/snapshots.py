"""Snapshots of workers and their messages.

Every snapshot has all deployments, which seldom change. Translating those of a thousand names takes
milliseconds, so a writer and a reader translate them only after a change.
"""

import dataclasses
from collections.abc import Sequence

from shaperouter.v1 import worker_pb2
from shaperouter_service.routing.deployments import Deployment
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.wire.deployments import deployments_from_message, deployments_to_message
from shaperouter_service.wire.models import MODELS
from shaperouter_service.wire.translation import Codec, Translation

# Everything but the deployments.
_SNAPSHOTS = Translation(
    Snapshot,
    worker_pb2.WatchResponse,
    codecs={ServedModel: MODELS, "deployments": Codec(lambda _: (), lambda _: ())},
)


class SnapshotWriter:
    """Writes the snapshots of one worker to messages."""

    def __init__(self) -> None:
        """Starts without deployments."""
        self._deployments: Sequence[Deployment] = ()
        # A message with these only.
        self._encoded = b""

    def write(self, snapshot: Snapshot) -> worker_pb2.WatchResponse:
        """The message of a snapshot."""
        if snapshot.deployments != self._deployments:
            written = deployments_to_message(snapshot.deployments).deployments
            self._encoded = worker_pb2.WatchResponse(deployments=written).SerializeToString()
            # Last: they are written again if that failed.
            self._deployments = snapshot.deployments
        message = _SNAPSHOTS.to_message(snapshot)
        message.MergeFromString(self._encoded)
        return message


class SnapshotReader:
    """Reads the snapshots of one worker from messages."""

    def __init__(self) -> None:
        """Starts without deployments."""
        self._deployments: Sequence[Deployment] = ()
        self._message = worker_pb2.DeployResponse()

    def read(self, message: worker_pb2.WatchResponse) -> Snapshot:
        """The snapshot of a message; while deployments are equal, they are the same object."""
        if message.deployments != self._message.deployments:
            self._message = worker_pb2.DeployResponse(deployments=message.deployments)
            self._deployments = tuple(deployments_from_message(self._message))
        return dataclasses.replace(_SNAPSHOTS.from_message(message), deployments=self._deployments)


def snapshot_to_message(snapshot: Snapshot) -> worker_pb2.WatchResponse:
    """The message of a single snapshot."""
    return SnapshotWriter().write(snapshot)


def snapshot_from_message(message: worker_pb2.WatchResponse) -> Snapshot:
    """The snapshot of a single message."""
    return SnapshotReader().read(message)
