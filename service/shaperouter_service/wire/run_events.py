"""Events of runs and their messages."""

from collections.abc import Iterable, Mapping

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.generation.run_events import (
    AlignedTokens,
    FinishReason,
    GraphUse,
    Hypothesis,
    Isolated,
    NewTokens,
    RunCompletion,
    RunEvent,
    RunTimings,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.wire.signatures import signature_from_message, signature_to_message

FINISH_REASON_TO_MESSAGE: Mapping[FinishReason, generation_pb2.FinishReason] = {
    FinishReason.EOS: generation_pb2.FINISH_REASON_EOS,
    FinishReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
    FinishReason.STOP: generation_pb2.FINISH_REASON_STOP,
}
_FINISH_REASON_FROM_MESSAGE = {
    message: reason for reason, message in FINISH_REASON_TO_MESSAGE.items()
}


def run_event_to_message(event: RunEvent) -> worker_pb2.RunResponse:
    """The message of a run's event."""
    match event:
        case Stalled():
            return worker_pb2.RunResponse(stall=stall_to_message(event))
        case Isolated():
            return worker_pb2.RunResponse(isolated=worker_pb2.Isolated())
        case NewTokens():
            return worker_pb2.RunResponse(
                tokens=worker_pb2.RunTokens(
                    token_ids=event.token_ids, logprobs=logprobs_to_message(event.logprobs)
                )
            )
        case RunCompletion():
            return worker_pb2.RunResponse(completion=_completion_to_message(event))


def run_event_from_message(message: worker_pb2.RunResponse) -> RunEvent | None:
    """The event of a message; None for one that only later versions know."""
    match message.WhichOneof("event"):
        case "stall":
            return Stalled(signature_from_message(message.stall.signature))
        case "isolated":
            return Isolated()
        case "tokens":
            return NewTokens(
                list(message.tokens.token_ids), _logprobs_from_message(message.tokens.logprobs)
            )
        case "completion":
            return _completion_from_message(message.completion)
    return None


def stall_to_message(stalled: Stalled) -> generation_pb2.Stall:
    """The message of a stall."""
    return generation_pb2.Stall(signature=signature_to_message(stalled.signature))


def logprobs_to_message(logprobs: Iterable[TokenLogprobs]) -> list[generation_pb2.TokenLogprobs]:
    """The messages of log-probabilities."""
    return [
        generation_pb2.TokenLogprobs(
            chosen=generation_pb2.TokenLogprob(token_id=one.token_id, logprob=one.logprob),
            top=[
                generation_pb2.TokenLogprob(token_id=token_id, logprob=logprob)
                for token_id, logprob in one.top
            ],
        )
        for one in logprobs
    ]


def _logprobs_from_message(
    messages: Iterable[generation_pb2.TokenLogprobs],
) -> list[TokenLogprobs]:
    return [
        TokenLogprobs(
            message.chosen.token_id,
            message.chosen.logprob,
            [(one.token_id, one.logprob) for one in message.top],
        )
        for message in messages
    ]


def graph_use_to_message(use: GraphUse) -> generation_pb2.GraphUse:
    """The message of a graph's calls."""
    return generation_pb2.GraphUse(
        asked=signature_to_message(use.asked),
        served=signature_to_message(use.served),
        calls=use.calls,
        device_seconds=use.device_seconds,
    )


def _completion_to_message(completion: RunCompletion) -> worker_pb2.RunCompletion:
    timings, aligned = completion.timings, completion.aligned
    return worker_pb2.RunCompletion(
        finish_reason=FINISH_REASON_TO_MESSAGE[completion.finish_reason],
        padded_prompt_tokens=completion.padded_prompt_tokens,
        padded_source_tokens=completion.padded_source_tokens,
        queue_seconds=timings.queue_seconds,
        stall_seconds=timings.stall_seconds,
        prefill_seconds=timings.prefill_seconds,
        decode_seconds=timings.decode_seconds,
        graphs=map(graph_use_to_message, completion.graphs),
        hypotheses=[
            worker_pb2.Hypothesis(
                token_ids=hypothesis.token_ids,
                finish_reason=FINISH_REASON_TO_MESSAGE[hypothesis.finish_reason],
                score=hypothesis.score,
                logprobs=logprobs_to_message(hypothesis.logprobs),
            )
            for hypothesis in completion.hypotheses
        ],
        no_speech_probability=completion.no_speech_probability,
        aligned=None
        if aligned is None
        else worker_pb2.AlignedTokens(places=aligned.positions, logprobs=aligned.logprobs),
    )


def _completion_from_message(message: worker_pb2.RunCompletion) -> RunCompletion:
    return RunCompletion(
        finish_reason=_FINISH_REASON_FROM_MESSAGE[message.finish_reason],
        timings=RunTimings(
            queue_seconds=message.queue_seconds,
            stall_seconds=message.stall_seconds,
            prefill_seconds=message.prefill_seconds,
            decode_seconds=message.decode_seconds,
        ),
        padded_prompt_tokens=message.padded_prompt_tokens,
        padded_source_tokens=message.padded_source_tokens,
        graphs=[
            GraphUse(
                asked=signature_from_message(use.asked),
                served=signature_from_message(use.served),
                calls=use.calls,
                device_seconds=use.device_seconds,
            )
            for use in message.graphs
        ],
        hypotheses=[
            Hypothesis(
                token_ids=list(hypothesis.token_ids),
                finish_reason=_FINISH_REASON_FROM_MESSAGE[hypothesis.finish_reason],
                score=hypothesis.score,
                logprobs=_logprobs_from_message(hypothesis.logprobs),
            )
            for hypothesis in message.hypotheses
        ],
        no_speech_probability=message.no_speech_probability
        if message.HasField("no_speech_probability")
        else None,
        aligned=AlignedTokens(list(message.aligned.places), list(message.aligned.logprobs))
        if message.HasField("aligned")
        else None,
    )
