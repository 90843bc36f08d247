"""The contestants' processes, called by the conductor."""

from dataclasses import dataclass
from typing import Any

from common.checkpoint import CHECKPOINT, CONVERTED
from common.paths import THREADS
from common.processes import PeerError, PeerProcess

from .contestants import Entry
from .workloads import NEW_TOKENS, Workload


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A generation.

    Attributes:
        seconds: Time from token ids to token ids.
        device_seconds: Time of compiled graphs within it, if known.
        token_ids: New tokens of each prompt.
    """

    seconds: float
    device_seconds: float | None
    token_ids: list[list[int]]


class Peer(PeerProcess):
    """A contestant's process, loaded."""

    def __init__(self, entry: Entry) -> None:
        """Starts the process, and returns once it has loaded.

        Raises:
            PeerError: It fails to start.
        """
        self.entry = entry
        super().__init__(
            name=entry.name,
            environment=entry.environment,
            module=f"{__package__}.{entry.module}",
            arguments=[
                f"--model={CONVERTED if entry.converted else CHECKPOINT}",
                f"--threads={THREADS}",
                *entry.options,
            ],
        )

    def generate(self, workload: Workload) -> Answer:
        """Runs a workload, and returns the result.

        Raises:
            PeerError: It fails, or makes another number of tokens.
        """
        question = {
            "task": "generate",
            "prompts": workload.prompts,
            "new_tokens": NEW_TOKENS,
            "options": workload.options,
        }
        answer = Answer(**self.ask(question))
        made = [len(token_ids) for token_ids in answer.token_ids]
        if made != [NEW_TOKENS] * len(workload.prompts):
            raise PeerError(f"made sequences of {made} tokens, not of {NEW_TOKENS}")
        return answer

    def graphs(self) -> list[dict[str, Any]]:
        """What it has traced and compiled since its start, after all compilations.

        Raises:
            PeerError: It fails.
        """
        graphs: list[dict[str, Any]] = self.ask({"task": "graphs"})["graphs"]
        return graphs

    def traces(self) -> int:
        """The total number of traces.

        Raises:
            PeerError: It fails.
        """
        return sum(graph["traces"] for graph in self.graphs())
