"""Run requests and their messages."""

from shaperouter.v1 import worker_pb2
from shaperouter_service.generation.run_request import RunRequest, Sound, TranscriptConstraints
from shaperouter_service.wire.options import run_options_from_message, run_options_to_message


def run_request_to_message(request: RunRequest) -> worker_pb2.RunRequest:
    """The message of a run request."""
    message = worker_pb2.RunRequest(
        request_id=request.request_id,
        model=request.model,
        token_ids=request.token_ids,
        options=run_options_to_message(request.options),
        generated_token_ids=request.generated_token_ids,
        client=request.client,
        lane_beams=request.lane_beams,
        tokens_interval_seconds=request.tokens_interval_seconds,
        resumed=request.resumed,
        source_token_ids=request.source_token_ids,
        suspect=request.suspect,
    )
    if request.sound is not None:
        message.sound.numbers = request.sound.samples
        message.sound.places = request.sound.positions
    if request.constraints is not None:
        message.options.transcript.CopyFrom(_constraints_to_message(request.constraints))
    if request.align_after is not None:
        message.alignment.prefix_tokens = request.align_after
    return message


def run_request_from_message(message: worker_pb2.RunRequest) -> RunRequest:
    """The run request of a message."""
    sound = None
    if message.HasField("sound"):
        sound = Sound(samples=message.sound.numbers, positions=message.sound.places)
    constraints = None
    if message.options.HasField("transcript"):
        constraints = _constraints_from_message(message.options.transcript)
    return RunRequest(
        request_id=message.request_id,
        model=message.model,
        token_ids=tuple(message.token_ids),
        options=run_options_from_message(message.options),
        constraints=constraints,
        generated_token_ids=tuple(message.generated_token_ids),
        client=message.client,
        lane_beams=message.lane_beams,
        tokens_interval_seconds=message.tokens_interval_seconds,
        resumed=message.resumed,
        source_token_ids=tuple(message.source_token_ids),
        sound=sound,
        align_after=message.alignment.prefix_tokens if message.HasField("alignment") else None,
        suspect=message.suspect,
    )


def _constraints_to_message(constraints: TranscriptConstraints) -> worker_pb2.TranscriptRules:
    first, last = constraints.first_token or (None, None)
    return worker_pb2.TranscriptRules(
        first_timestamp=constraints.first_timestamp,
        last_initial_timestamp=constraints.last_initial_timestamp,
        begin_suppressed=constraints.begin_suppressed,
        least_first=first,
        largest_first=last,
        no_speech=constraints.no_speech,
        no_speech_place=constraints.no_speech_position,
    )


def _constraints_from_message(message: worker_pb2.TranscriptRules) -> TranscriptConstraints:
    return TranscriptConstraints(
        first_timestamp=message.first_timestamp if message.HasField("first_timestamp") else None,
        last_initial_timestamp=message.last_initial_timestamp,
        begin_suppressed=tuple(message.begin_suppressed),
        first_token=(message.least_first, message.largest_first)
        if message.HasField("least_first")
        else None,
        no_speech=message.no_speech if message.HasField("no_speech") else None,
        no_speech_position=message.no_speech_place,
    )
