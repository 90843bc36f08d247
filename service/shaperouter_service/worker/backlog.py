"""An estimate of the work that a lane still has to do for its runs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shaperouter_service.worker.run import Phase, Run

# Weight of the newest run to end. The estimate then rests on some tens of runs: enough to be
# steady, few enough to follow a change of traffic within a minute of load.
NEWEST_WEIGHT = 1 / 32
# Tokens that a run is expected to generate at most, before any run has ended: the default limit of
# an answer in a conversation is far above what most answers take.
LONGEST_EXPECTED = 256


class LengthEstimator:
    """Estimates how many of the tokens that runs may generate they will generate.

    Many runs end long before their limit. If routers counted their limits, queues would look ten
    times as long as they are, and requests would be refused for it.

    Written by the device thread; any thread may read it.
    """

    def __init__(self) -> None:
        """Starts without runs."""
        # Replaced as a whole, because other threads read it.
        self._generated_and_limit = (0.0, 0.0)

    def expected(self, left: Iterable[int]) -> int:
        """How many tokens runs are expected to generate that may still generate `left` each."""
        generated, limit = self._generated_and_limit
        if not limit:
            return sum(min(each, LONGEST_EXPECTED) for each in left)
        return math.ceil(generated / limit * sum(left))

    def observe(self, generated: int, limit: int) -> None:
        """Counts a run that was not cancelled.

        Args:
            generated: Number of tokens that it generated, at least 1.
            limit: Number of tokens that it was allowed.
        """
        mean_generated, mean_limit = self._generated_and_limit
        self._generated_and_limit = (
            mean_generated + NEWEST_WEIGHT * (generated - mean_generated),
            mean_limit + NEWEST_WEIGHT * (limit - mean_limit),
        )


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The work left for the runs of a lane, including the queued ones.

    Attributes:
        tokens: Number of tokens expected to be generated.
        sources: Length of each source to be read, in positions.
        prompts: Length of each prompt to be read, in tokens.
    """

    tokens: int
    sources: Sequence[int]
    prompts: Sequence[int]

    @classmethod
    def of(cls, runs: Iterable[Run], lengths: LengthEstimator) -> "Backlog":
        """Sums the work left.

        Args:
            runs: The runs of a lane.
            lengths: The lengths of those that have ended.
        """
        runs = list(runs)
        unread = [run for run in runs if run.phase is not Phase.DECODE]
        return cls(
            tokens=lengths.expected(run.max_new_tokens - run.generated for run in runs),
            sources=[
                run.source_length
                for run in unread
                if run.has_source and run.phase in (Phase.QUEUED, Phase.ENCODE)
            ],
            prompts=[run.read_tokens for run in unread if run.read_tokens],
        )
