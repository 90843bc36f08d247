"""Run requests and their messages."""

from shaperouter.v1 import worker_pb2
from shaperouter_service.generation.run_request import RunRequest, Sound


def run_request_to_message(request: RunRequest) -> worker_pb2.RunRequest:
    """The message of a run request."""
    message = worker_pb2.RunRequest(
        request_id=request.request_id,
        model=request.model,
        token_ids=request.token_ids,
        options=request.options,
        generated_token_ids=request.generated_token_ids,
        client=request.client,
        lane_beams=request.lane_beams,
        tokens_interval_seconds=request.tokens_interval_seconds,
        resumed=request.resumed,
        source_token_ids=request.source_token_ids,
        suspect=request.suspect,
    )
    if request.sound is not None:
        message.sound.samples = request.sound.samples
        message.sound.positions = request.sound.positions
    if request.align_after is not None:
        message.alignment.prefix_tokens = request.align_after
    return message


def run_request_from_message(message: worker_pb2.RunRequest) -> RunRequest:
    """The run request of a message."""
    sound = None
    if message.HasField("sound"):
        sound = Sound(samples=message.sound.samples, positions=message.sound.positions)
    return RunRequest(
        request_id=message.request_id,
        model=message.model,
        token_ids=tuple(message.token_ids),
        options=message.options,
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
