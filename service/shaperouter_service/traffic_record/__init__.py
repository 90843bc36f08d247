"""The record of traffic on disk: every worker process writes it, and new workers read it."""

from shaperouter_service.traffic_record.files import read_record
from shaperouter_service.traffic_record.recorder import TrafficRecorder

__all__ = ["TrafficRecorder", "read_record"]
