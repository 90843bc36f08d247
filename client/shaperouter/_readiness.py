"""Readiness checks: their requests and what the answers mean, for both clients."""

import grpc
from google.protobuf import wrappers_pb2

from shaperouter._errors import DeadlineError
from shaperouter._retries import RetryPolicy
from shaperouter.v1 import model_pb2

# gRPC's standard health service. On the wire, its request is one string and its response one enum,
# so these well-known types fit and no package with its stubs is needed.
HEALTH_METHOD = "/grpc.health.v1.Health/Check"
READINESS = wrappers_pb2.StringValue(value="readiness")
_SERVING = 1

# Seconds between two checks, and the shortest and longest timeout of one.
PAUSE = 0.25
_SHORTEST_LOOK = 0.1
_LONGEST_LOOK = 5.0

# The caller repeats checks.
ONCE = RetryPolicy(retries=0, after_overload=False)


def serialize(request: wrappers_pb2.StringValue) -> bytes:
    """Serializes the request of the health service."""
    return request.SerializeToString()


def parse(response: bytes) -> wrappers_pb2.Int32Value:
    """Parses the response of the health service."""
    return wrappers_pb2.Int32Value.FromString(response)


def look_timeout(left: float | None) -> float:
    """Timeout of one check in seconds, given the time left; None means no limit."""
    return _LONGEST_LOOK if left is None else min(max(left, _SHORTEST_LOOK), _LONGEST_LOOK)


def lack_of_service(status: wrappers_pb2.Int32Value) -> str:
    """Why a service with this health status is not ready; empty if it is."""
    return "" if status.value == _SERVING else "a model has no ready worker yet"


def lack_of_model(model: model_pb2.Model) -> str:
    """Why a model is not ready; empty if it is."""
    return "" if model.ready_workers else f"model {model.name} has no ready worker yet"


def too_late(deadline: float | None, why: str) -> DeadlineError:
    """The error after waiting too long."""
    limit = "in time" if deadline is None else f"within {deadline:g} s"
    return DeadlineError(f"not ready {limit}: {why}", code=grpc.StatusCode.DEADLINE_EXCEEDED)
