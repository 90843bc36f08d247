"""A router's orders about models, and their message."""

from shaperouter.v1 import worker_pb2
from shaperouter_service.routing.deployments import Orders
from shaperouter_service.wire.translation import Translation

_ORDERS = Translation(Orders, worker_pb2.DeployRequest)
orders_to_message = _ORDERS.to_message
orders_from_message = _ORDERS.from_message
