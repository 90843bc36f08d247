"""Events of the runs of a `FakeWorker`, and how they are cut to what a request asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shaperouter.v1 import generation_pb2, signature_pb2, worker_pb2

Step = worker_pb2.RunResponse | Exception | Callable[[], Awaitable[object]]


class Events:
    """Makes the events of scripts."""

    @staticmethod
    def tokens(
        *token_ids: int, input_usage: worker_pb2.InputUsage | None = None
    ) -> worker_pb2.RunResponse:
        """New tokens; the first ones of a run also tell what was read."""
        return worker_pb2.RunResponse(
            tokens=worker_pb2.RunTokens(token_ids=token_ids, input_usage=input_usage)
        )

    @staticmethod
    def scores(*token_ids: int) -> worker_pb2.RunResponse:
        """Log-probabilities of the next tokens of a prompt, which are these."""
        logprobs = Events.logprobs(token_ids, 0)
        return worker_pb2.RunResponse(
            prompt_logprobs=generation_pb2.PromptLogprobs(logprobs=logprobs)
        )

    @staticmethod
    def hypothesis(score: float, *token_ids: int) -> worker_pb2.Hypothesis:
        """A sequence that beam search found."""
        return worker_pb2.Hypothesis(
            token_ids=token_ids,
            finish_reason=generation_pb2.FINISH_REASON_LENGTH,
            score=score,
        )

    @staticmethod
    def logprobs(token_ids: Sequence[int], likeliest: int) -> list[generation_pb2.TokenLogprobs]:
        """Log-probabilities of tokens, each likelier than the next."""
        return [
            generation_pb2.TokenLogprobs(
                chosen=generation_pb2.TokenLogprob(token_id=token, logprob=-token / 4),
                top=[
                    generation_pb2.TokenLogprob(token_id=other, logprob=-other / 4)
                    for other in range(likeliest)
                ],
            )
            for token in token_ids
        ]

    @staticmethod
    def stall(length: int = 16) -> worker_pb2.RunResponse:
        """The start of a stall on a prefill graph."""
        return worker_pb2.RunResponse(
            stall=generation_pb2.Stall(signature=Events.signature(length))
        )

    @staticmethod
    def completion(
        reason: generation_pb2.FinishReason = generation_pb2.FINISH_REASON_LENGTH,
        hypotheses: Sequence[worker_pb2.Hypothesis] = (),
    ) -> worker_pb2.RunResponse:
        """The end of a run."""
        prefill = Events.signature(16)
        return worker_pb2.RunResponse(
            completion=worker_pb2.RunCompletion(
                finish_reason=reason,
                padded_prompt_tokens=16,
                queue_seconds=0.125,
                stall_seconds=2.5,
                prefill_seconds=0.25,
                decode_seconds=0.5,
                graphs=[
                    generation_pb2.GraphUse(
                        asked=prefill, served=prefill, calls=1, device_seconds=0.0625
                    )
                ],
                hypotheses=hypotheses,
            )
        )

    @staticmethod
    def signature(
        length: int, kind: signature_pb2.GraphKind = signature_pb2.GRAPH_KIND_PREFILL
    ) -> signature_pb2.Signature:
        """A signature of one row."""
        return signature_pb2.Signature(model="tiny", kind=kind, rows=1, length=length, beams=1)


def has(step: Step, field: Any) -> bool:
    """Whether a step is an event of a kind."""
    return isinstance(step, worker_pb2.RunResponse) and step.HasField(field)


def without_scores(
    step: worker_pb2.RunResponse, skipped: int, request: worker_pb2.RunRequest
) -> worker_pb2.RunResponse | None:
    """Leaves out the first log-probabilities of a prompt; None if none are left or requested."""
    logprobs = step.prompt_logprobs.logprobs[skipped:]
    if not logprobs or not request.options.HasField("prompt_logprobs"):
        return None
    return worker_pb2.RunResponse(prompt_logprobs=generation_pb2.PromptLogprobs(logprobs=logprobs))


def with_tokens(step: worker_pb2.RunResponse, new: Sequence[int]) -> worker_pb2.RunResponse:
    """A step with some of its tokens."""
    told = worker_pb2.RunResponse()
    told.CopyFrom(step)
    if told.HasField("tokens"):
        told.tokens.token_ids[:] = new
    return told


def with_logprobs(
    step: worker_pb2.RunResponse, options: worker_pb2.RunOptions
) -> worker_pb2.RunResponse:
    """A step with the log-probabilities that the options ask for."""
    if not options.HasField("logprobs"):
        return step
    told = worker_pb2.RunResponse()
    told.CopyFrom(step)
    for part in (told.tokens, *told.completion.hypotheses):
        if part.token_ids:
            part.logprobs.extend(Events.logprobs(part.token_ids, options.logprobs))
    return told
