"""Assembly of a stream's events into a generation."""

from collections import defaultdict
from collections.abc import Callable

from shaperouter import _convert
from shaperouter._errors import InternalError
from shaperouter._generation import Delta, GeneratedSequence, Generation, TokenLogprobs
from shaperouter._signature import Signature
from shaperouter._stream_events import CompletedEvents
from shaperouter.v1 import generation_pb2


class GenerationEvents(CompletedEvents[Generation]):
    """Reads the events of one stream, in order.

    Not thread-safe: only one reader may feed it.

    Attributes:
        prompt_logprobs: The log-probabilities of the prompt so far, if requested.
    """

    def __init__(self, on_stall: Callable[[Signature], None] | None) -> None:
        """Starts empty; `on_stall` is called for each stall event."""
        super().__init__()
        self.prompt_logprobs: tuple[TokenLogprobs, ...] = ()
        self._on_stall = on_stall
        self._deltas: defaultdict[int, list[Delta]] = defaultdict(list)  # by sequence

    def add(self, event: generation_pb2.GenerateStreamResponse) -> Delta | None:
        """Takes the next event and returns its delta, or None if it has none.

        Raises:
            InternalError: The event comes after the completion.
        """
        self._expect_more()
        match event.WhichOneof("event"):
            case "delta":
                delta = _convert.delta(event.delta)
                self._deltas[delta.sequence].append(delta)
                return delta
            case "stall":
                if self._on_stall is not None:
                    self._on_stall(_convert.signature(event.stall.signature))
            case "prompt_logprobs":
                self.prompt_logprobs += _convert.logprobs(event.prompt_logprobs.logprobs)
            case "completion":
                self._result = self._assemble(event.completion)
        return None  # also for events that this version does not know

    def _assemble(self, completion: generation_pb2.StreamCompletion) -> Generation:
        if not completion.sequences:
            raise InternalError(
                "the service ended a stream without a sequence",
                request_id=completion.completion.request_id,
            )
        sequences = []
        for index, end in enumerate(completion.sequences):
            deltas = self._deltas[index]
            sequences.append(
                GeneratedSequence(
                    text="".join(delta.text for delta in deltas),
                    token_ids=tuple(token for delta in deltas for token in delta.token_ids),
                    finish_reason=_convert.finish_reason(end.finish_reason),
                    score=_convert.score(end),
                    logprobs=tuple(each for delta in deltas for each in delta.logprobs),
                )
            )
        return _convert.generation(tuple(sequences), completion.completion, self.prompt_logprobs)
