"""A router's orders about models, what workers answer, and their messages."""

from collections.abc import Iterable

from shaperouter.v1 import worker_pb2
from shaperouter_service.routing.deployments import Deployment, Orders
from shaperouter_service.wire.translation import Translation

_ORDERS = Translation(Orders, worker_pb2.DeployRequest)
orders_to_message = _ORDERS.to_message
orders_from_message = _ORDERS.from_message

_DEPLOYMENTS = Translation(Deployment, worker_pb2.Deployment)


def deployments_to_message(deployments: Iterable[Deployment]) -> worker_pb2.DeployResponse:
    """The message of the deployments that a worker knows."""
    return worker_pb2.DeployResponse(deployments=map(_DEPLOYMENTS.to_message, deployments))


def deployments_from_message(message: worker_pb2.DeployResponse) -> list[Deployment]:
    """The deployments of a message."""
    return list(map(_DEPLOYMENTS.from_message, message.deployments))
