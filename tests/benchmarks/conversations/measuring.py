"""Measures contestants in rounds, each called by the same callers in turn.

All contestants run from the start to the end, so that each round has all of them under the same
conditions. Those that are not called rest: a contestant's turn begins when the one before is idle.
"""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from load.closed_loops import SETTLE_SECONDS
from load.contestant import Contestant, Model

from common.paths import LOGS, PYTHON_PATH, WORK, environment_python
from common.processes import PeerError, PeerProcess
from common.terminal import Tell

from .contestants import LLAMACPP, Gguf, Talker
from .figures import Answered
from .script import draw_turns

# Purposes of seeds.
WARM_UP, MEASURED = range(2)
# Seconds that a turn may take.
DEADLINE = 60.0
# Seconds that a round may take.
ROUND_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a measurement.

    Attributes:
        callers: Number of conversations at the same time.
        turns: Number of turns of each caller in a round that are measured.
        rounds: Number of rounds.
        warm_ups: Number of rounds before these, with other conversations.
        seed: Seed of all conversations.
    """

    callers: int
    turns: int
    rounds: int
    warm_ups: int
    seed: int


@dataclass(kw_only=True)
class Measured:
    """What contestants did.

    Attributes:
        rounds: The measured turns of each round, by contestant.
        versions: Versions of their packages, by contestant.
    """

    rounds: dict[str, list[list[Answered]]] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)


class Callers(PeerProcess):
    """The process of the callers."""

    def __init__(self) -> None:
        """Starts the process."""
        super().__init__(
            name="callers",
            environment=".venvs/bench-conductor",
            module=f"{__package__}.callers",
            arguments=[],
        )

    def hold(
        self, talker: Talker, server: Contestant, seed: Sequence[int], settings: Settings
    ) -> list[Answered]:
        """Holds conversations with a server; returns the measured turns.

        Raises:
            PeerError: A turn fails.
        """
        plans: list[list[dict[str, Any]]] = [
            [asdict(turn) for turn in draw_turns(seed, caller, settings.turns)]
            for caller in range(settings.callers)
        ]
        question = {"address": server.address, "door": talker.door, "plans": plans}
        found = self.ask(question | {"deadline": DEADLINE}, timeout=ROUND_SECONDS)
        return [Answered(**turn) for turn in found["turns"]]


def measure(settings: Settings, model: Model, talkers: Sequence[Talker], tell: Tell) -> Measured:
    """Measures these contestants.

    Raises:
        PeerError: One of them fails.
    """
    found = Measured()
    with ExitStack() as stack:
        callers = stack.enter_context(Callers())
        servers: list[tuple[Talker, Contestant]] = []
        for talker in talkers:
            tell(f"starting {talker.entry.label}")
            files = _gguf(model) if talker is LLAMACPP else model
            server = Contestant(talker.entry, files, options=talker.options)
            servers.append((talker, stack.enter_context(server)))
            found.versions[talker.entry.name] = dict(server.versions)
        for purpose, rounds in ((WARM_UP, settings.warm_ups), (MEASURED, settings.rounds)):
            for number in range(rounds):
                for talker, server in servers:
                    what = "warming up" if purpose == WARM_UP else "measuring"
                    tell(f"round {number + 1}, {what} {talker.entry.label}")
                    seed = [settings.seed, purpose, number]
                    turns = callers.hold(talker, server, seed, settings)
                    server.settle(SETTLE_SECONDS)
                    if purpose == MEASURED:
                        found.rounds.setdefault(talker.entry.name, []).append(turns)
    return found


def _gguf(model: Model) -> Gguf:
    """Writes the checkpoint as GGUF, unless it exists.

    Raises:
        PeerError: The converter fails; its output is in the logs.
    """
    path = WORK / f"{model.name}-words-Q8_0.gguf"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / f"{path.name}.log"
        python = environment_python(LLAMACPP.entry.environment)
        module = "families.gguf_checkpoint"
        with log.open("w", encoding="utf-8") as output:
            status = subprocess.run(
                [python, "-m", module, model.checkpoint, unfinished, "Q8_0", "--words"],
                env={"PYTHONPATH": PYTHON_PATH},
                stdout=output,
                stderr=output,
                check=False,
            ).returncode
        if status:
            raise PeerError(f"{module} failed; see {log}")
        unfinished.rename(path)
    return Gguf(checkpoint=path)
