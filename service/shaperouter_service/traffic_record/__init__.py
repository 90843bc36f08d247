"""The record of traffic on disk: written by every worker process, read by whoever starts anew."""

from shaperouter_service.traffic_record.files import read_record
from shaperouter_service.traffic_record.recorder import TrafficRecorder

__all__ = ["TrafficRecorder", "read_record"]
