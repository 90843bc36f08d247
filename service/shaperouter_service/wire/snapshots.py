"""Snapshots of workers and their messages."""

from shaperouter.v1 import worker_pb2
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.wire.models import MODELS
from shaperouter_service.wire.translation import Translation

_SNAPSHOTS = Translation(Snapshot, worker_pb2.WatchResponse, codecs={ServedModel: MODELS})
snapshot_to_message = _SNAPSHOTS.to_message
snapshot_from_message = _SNAPSHOTS.from_message
