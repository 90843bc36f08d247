"""Events of runs and their messages."""

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.generation.run_events import (
    Isolated,
    NewTokens,
    PromptLogprobs,
    RunCompletion,
    RunEvent,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.wire.translation import Codec, EventTranslation


def _logprobs_to_message(logprobs: TokenLogprobs) -> generation_pb2.TokenLogprobs:
    return generation_pb2.TokenLogprobs(
        chosen=generation_pb2.TokenLogprob(token_id=logprobs.token_id, logprob=logprobs.logprob),
        top=[
            generation_pb2.TokenLogprob(token_id=token_id, logprob=logprob)
            for token_id, logprob in logprobs.top
        ],
    )


def _logprobs_from_message(message: generation_pb2.TokenLogprobs) -> TokenLogprobs:
    top = tuple((each.token_id, each.logprob) for each in message.top)
    return TokenLogprobs(message.chosen.token_id, message.chosen.logprob, top)


LOGPROBS = {TokenLogprobs: Codec(_logprobs_to_message, _logprobs_from_message)}
_EVENTS = EventTranslation[RunEvent, worker_pb2.RunResponse](
    worker_pb2.RunResponse,
    {
        "stall": Stalled,
        "isolated": Isolated,
        "prompt_logprobs": PromptLogprobs,
        "tokens": NewTokens,
        "completion": RunCompletion,
    },
    names={"places": "positions"},
    codecs=LOGPROBS,
)
run_event_to_message = _EVENTS.to_message
run_event_from_message = _EVENTS.from_message
