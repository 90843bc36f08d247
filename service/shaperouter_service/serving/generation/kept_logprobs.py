"""The memory of log-probabilities that a router keeps until it writes an answer."""

from collections.abc import Sequence

from shaperouter_service.generation.events import Delta, GenerationEvent
from shaperouter_service.generation.run_events import PromptLogprobs, TokenLogprobs
from shaperouter_service.serving.fair_memory import Share

# Bytes of the log-probability of one token, and of each likeliest one: 150 while it is kept, and
# the others while the answer is being written as JSON, where they were measured.
LOGPROB_BYTES = 800


class KeptLogprobs:
    """Counts the log-probabilities that one call keeps. Only the event loop may use it.

    Attributes:
        size: Their bytes.
    """

    def __init__(self, share: Share) -> None:
        """Takes the memory of the call."""
        self.size = 0
        self._share = share

    def of_all(self, event: GenerationEvent) -> None:
        """Counts all those of an event.

        Raises:
            InvalidRequestError: The call keeps more than any client may.
            LogprobMemoryError: Not enough memory is left.
        """
        if isinstance(event, Delta):
            self._add(event.logprobs)
        self.of_prompt(event)

    def of_prompt(self, event: GenerationEvent) -> None:
        """Counts those of the prompt only: a stream repeats them for each sequence.

        Raises:
            InvalidRequestError: See `of_all`.
            LogprobMemoryError: Likewise.
        """
        if isinstance(event, PromptLogprobs):
            self._add(event.logprobs)

    def _add(self, logprobs: Sequence[TokenLogprobs]) -> None:
        if logprobs:
            size = self.size + LOGPROB_BYTES * sum(1 + len(each.top) for each in logprobs)
            self._share.resize(size)
            self.size = size
