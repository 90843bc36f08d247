"""Decisions of the router and their messages."""

from shaperouter.v1 import generation_pb2
from shaperouter_service.routing.call_decision import CallOption
from shaperouter_service.routing.choice import Decision, WorkerOption
from shaperouter_service.routing.decision import Option
from shaperouter_service.wire.translation import Codec, Translation, unchanged

_OPTIONS = Translation(Option, generation_pb2.RouteOption, unused=["call", "call_seconds"])
_CALL_OPTIONS = Translation(
    CallOption,
    generation_pb2.RouteOption,
    names={"call": "graph"},
    unused=["encode", "prefill", "decode", "prefill_seconds", "decode_seconds"],
)


def _option_to_message(option: WorkerOption) -> generation_pb2.RouteOption:
    match option:
        case Option():
            return _OPTIONS.to_message(option)
        case CallOption():
            return _CALL_OPTIONS.to_message(option)
    raise TypeError(f"no message for {type(option)}")


def _decision_to_message(decision: Decision[WorkerOption]) -> generation_pb2.Route:
    return generation_pb2.Route(options=map(_option_to_message, decision.options))


# Nothing reads the messages.
DECISIONS = {Decision[WorkerOption]: Codec(_decision_to_message, unchanged)}
