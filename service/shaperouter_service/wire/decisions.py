"""Decisions of the router and their messages."""

from shaperouter.v1 import generation_pb2
from shaperouter_service.routing.decision import Decision
from shaperouter_service.wire.signatures import signature_to_message


def decision_to_message(decision: Decision) -> generation_pb2.Route:
    """The message of a decision."""
    return generation_pb2.Route(
        options=[
            generation_pb2.RouteOption(
                worker=option.worker,
                encode=signature_to_message(option.encode) if option.encode else None,
                prefill=signature_to_message(option.prefill) if option.prefill else None,
                decode=signature_to_message(option.decode),
                queue_seconds=option.queue_seconds,
                stall_seconds=option.stall_seconds,
                prefill_seconds=option.prefill_seconds,
                decode_seconds=option.decode_seconds,
                total_seconds=option.total_seconds,
            )
            for option in decision.options
        ]
    )
