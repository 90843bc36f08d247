"""Readiness checks: their requests, and what the answers mean."""

import grpc
from google.protobuf import wrappers_pb2

from shaperouter._errors import DeadlineError
from shaperouter.v1 import model_pb2

# gRPC's standard health service. On the wire, its request is one string and its response one enum,
# so these well-known types fit and no package with its stubs is needed.
HEALTH_METHOD = "/grpc.health.v1.Health/Check"
READINESS = wrappers_pb2.StringValue(value="readiness")
_SERVING = 1

# Seconds between two checks, and the limits of the timeout of each.
PAUSE = 0.25
_MIN_TIMEOUT = 0.1
_MAX_TIMEOUT = 5.0


def serialize(request: wrappers_pb2.StringValue) -> bytes:
    """Serializes the request of the health service."""
    return request.SerializeToString()


def parse(response: bytes) -> wrappers_pb2.Int32Value:
    """Parses the response of the health service."""
    return wrappers_pb2.Int32Value.FromString(response)


def check_timeout(left: float | None) -> float:
    """Timeout of a repeated check in seconds, given the time left; None means no limit."""
    return _MAX_TIMEOUT if left is None else min(max(left, _MIN_TIMEOUT), _MAX_TIMEOUT)


def reason_of_service(status: wrappers_pb2.Int32Value) -> str:
    """Why a service with this health status is not ready; empty if it is."""
    return "" if status.value == _SERVING else "a model has no ready worker yet"


def reason_of_model(model: model_pb2.Model) -> str:
    """Why a model is not ready; empty if it is."""
    return "" if model.ready_workers else f"model {model.name} has no ready worker yet"


def not_ready(deadline: float | None, reason: str) -> DeadlineError:
    """The error of a wait that ran out of time."""
    limit = "in time" if deadline is None else f"within {deadline:g} s"
    return DeadlineError(f"not ready {limit}: {reason}", code=grpc.StatusCode.DEADLINE_EXCEEDED)
