"""Run requests and their messages."""

from dataclasses import replace

from shaperouter.v1 import worker_pb2
from shaperouter_service.generation.resolution import Resolved
from shaperouter_service.generation.run_request import RunRequest, TranscriptConstraints
from shaperouter_service.wire.options import run_options_from_message, run_options_to_message
from shaperouter_service.wire.translation import Codec, Translation

_REQUESTS = Translation(
    RunRequest,
    worker_pb2.RunRequest,
    names={"alignment": "align_after", "numbers": "samples", "places": "positions"},
    codecs={
        Resolved: Codec(run_options_to_message, run_options_from_message),
        "align_after": Codec(
            lambda prefix_tokens: worker_pb2.Alignment(prefix_tokens=prefix_tokens),
            lambda alignment: alignment.prefix_tokens,
        ),
    },
)
_CONSTRAINTS = Translation(
    TranscriptConstraints,
    worker_pb2.TranscriptRules,
    names={
        "least_first": "min_first_token",
        "largest_first": "max_first_token",
        "no_speech_place": "no_speech_position",
    },
)


def run_request_to_message(request: RunRequest) -> worker_pb2.RunRequest:
    """The message of a run request, whose constraints are beside its options."""
    message = _REQUESTS.to_message(request)
    if request.constraints is not None:
        message.options.transcript.CopyFrom(_CONSTRAINTS.to_message(request.constraints))
    return message


def run_request_from_message(message: worker_pb2.RunRequest) -> RunRequest:
    """The run request of a message."""
    request = _REQUESTS.from_message(message)
    if not message.options.HasField("transcript"):
        return request
    return replace(request, constraints=_CONSTRAINTS.from_message(message.options.transcript))
