"""Measures T5's small size by every contestant in turn, and reports the results.

Writes build/bench/t5.json and t5.md; with --publish also its section in docs/measurements.md.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from generation.workloads import NEW_TOKENS, Kind, Workload

from common.checkpoint import convert_checkpoint
from common.conditions import conditions
from common.files import write_figures
from common.paths import REPOSITORY, THREADS, WORK
from common.processes import PeerError, PeerProcess
from common.publishing import publish_section
from common.tables import Spread, Table, Target, targets_table
from common.terminal import Tell, console, telling

from .checkpoint import CHECKPOINT, CONVERTED, make_checkpoint
from .workloads import workloads

ROUNDS = 7
# The first call traces and compiles, or allocates; the second shows what all others take.
WARM_UPS = 2
# After an answer, threads of a library may spin for a while before they sleep.
PAUSE = 0.3
RESULT, REPORT = WORK / "t5.json", WORK / "t5.md"
HEADING = "## A T5 against others (`make bench-t5`)"
BEFORE = "## What was missed, and why"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant.

    Attributes:
        label: Label in tables.
        environment: Folder of its environment, relative to the repository.
        module: Its module in this package.
        options: Arguments of its module.
        converted: Whether it loads the checkpoint in CTranslate2's format.
    """

    label: str
    environment: str
    module: str
    options: Sequence[str] = ()
    converted: bool = False


OURS = Entry(label="Shaperouter, engine", environment=".venv", module="peer_shaperouter")
TORCH = Entry(
    label="Transformers, PyTorch",
    environment=".venvs/bench-torch",
    module="peer_transformers_torch",
)
CTRANSLATE2 = Entry(
    label="CTranslate2, float32",
    environment=".venvs/bench-ct2",
    module="peer_ctranslate2",
    options=["--compute-type=float32"],
    converted=True,
)
# It computes in another way, so its tokens may differ.
CTRANSLATE2_INT8 = Entry(
    label="CTranslate2, int8",
    environment=".venvs/bench-ct2",
    module="peer_ctranslate2",
    options=["--compute-type=int8"],
    converted=True,
)
ENTRIES = (OURS, TORCH, CTRANSLATE2, CTRANSLATE2_INT8)


@dataclass(kw_only=True)
class Measured:
    """Seconds of each round by workload and contestant, and whether tokens equal PyTorch's."""

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    equal: dict[str, dict[str, bool]] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def ratios(self, workload: Workload, entry: Entry, other: Entry) -> Spread:
        """The ratios of a contestant's times to another's, round by round."""
        times = self.seconds[workload.name]
        pairs = zip(times[entry.label], times[other.label], strict=True)
        return Spread.of([ours / theirs for ours, theirs in pairs])


def measure(rounds: int, tell: Tell) -> Measured:
    """Starts and warms up all contestants, then calls them in turn, round after round.

    Raises:
        PeerError: Somebody can't do it.
    """
    measured = Measured()
    with ExitStack() as stack:
        peers = []
        for entry in ENTRIES:
            tell(f"loading {entry.label}")
            peers.append((entry, stack.enter_context(_started(entry))))
            measured.versions[entry.label] = peers[-1][1].versions
        for workload in workloads():
            made = {}
            for entry, peer in peers:
                tell(f"warming up: {workload.label}, {entry.label}")
                for _ in range(WARM_UPS):
                    made[entry.label] = _ask(peer, workload)["token_ids"]
            measured.equal[workload.name] = {
                label: token_ids == made[TORCH.label] for label, token_ids in made.items()
            }
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            # The order changes, so that each contestant runs after every other one.
            first = number % len(peers)
            for workload in workloads():
                times = measured.seconds.setdefault(workload.name, {})
                for entry, peer in peers[first:] + peers[:first]:
                    time.sleep(PAUSE)
                    times.setdefault(entry.label, []).append(_ask(peer, workload)["seconds"])
    return measured


def _started(entry: Entry) -> PeerProcess:
    return PeerProcess(
        name=f"t5-{entry.module}",
        environment=entry.environment,
        module=f"{__package__}.{entry.module}",
        arguments=[
            f"--model={CONVERTED if entry.converted else CHECKPOINT}",
            f"--threads={THREADS}",
            *entry.options,
        ],
    )


def _ask(peer: PeerProcess, workload: Workload) -> dict[str, Any]:
    answer = peer.ask(
        {
            "task": "generate",
            "prompts": workload.prompts,
            "new_tokens": NEW_TOKENS,
            "options": workload.options,
        }
    )
    made = [len(token_ids) for token_ids in answer["token_ids"]]
    if made != [NEW_TOKENS] * len(workload.prompts):
        raise PeerError(f"made sequences of {made} tokens, not of {NEW_TOKENS}")
    return answer


def tables(measured: Measured) -> list[Table]:
    """The report of the measurements."""
    head = ["", *(workload.label for workload in workloads())]
    return [
        Table(
            title=f"Milliseconds for {NEW_TOKENS} new tokens",
            head=head,
            rows=[
                [
                    entry.label,
                    *(
                        Spread.of(times[entry.label]).show(".0f", factor=1e3)
                        for times in measured.seconds.values()
                    ),
                ]
                for entry in ENTRIES
            ],
            note="Median of the rounds, and the largest deviation from it.",
        ),
        Table(
            title=f"Time relative to {OURS.label}",
            head=head,
            rows=[
                [
                    entry.label,
                    *(measured.ratios(each, entry, OURS).show() for each in workloads()),
                ]
                for entry in ENTRIES
                if entry is not OURS
            ],
            note="Median of the ratios of each round, and the largest deviation from it.",
        ),
        Table(
            title=f"Tokens equal to those of {TORCH.label}",
            head=head,
            rows=[
                [
                    entry.label,
                    *("yes" if equal[entry.label] else "no" for equal in measured.equal.values()),
                ]
                for entry in ENTRIES
                if entry is not TORCH
            ],
        ),
        targets_table(
            [
                Target(
                    text=f"{workload.label}: time ÷ that of {other.label}",
                    limit=limit,
                    figure=measured.ratios(workload, OURS, other),
                )
                for kind in (Kind.GREEDY, Kind.BEAMS)
                for workload in workloads()
                if workload.kind is kind
                for other, limit in ((TORCH, 1.0), (CTRANSLATE2, 1.1))
            ]
        ),
    ]


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="make bench-t5", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds in turn (default: {ROUNDS})"
    )
    parser.add_argument("--publish", action="store_true", help="publish the result in docs/")
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    found = conditions()
    with telling() as tell:
        tell("making the checkpoint, and converting it for CTranslate2")
        make_checkpoint(CHECKPOINT)
        convert_checkpoint(CHECKPOINT, CONVERTED)
        measured = measure(arguments.rounds, tell)
    write_figures({"conditions": found, "rounds": arguments.rounds, **vars(measured)}, RESULT)
    made = tables(measured)
    for table in made:
        table.show(console)
    parts = [_conditions(found, arguments.rounds), *(table.markdown() for table in made)]
    text = "\n\n".join(parts)
    REPORT.write_text(text + "\n", encoding="utf-8")
    console.print(f"Raw figures: {RESULT.relative_to(REPOSITORY)}", style="dim")
    if arguments.publish:
        publish_section(HEADING, text, before=BEFORE)
        console.print("Published in docs/measurements.md.")
    return 0


def _conditions(found: Mapping[str, Any], rounds: int) -> str:
    return (
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB, load "
        f"{found['load_before']:.1f} before. T5-small (60 million parameters) with random weights, "
        f"in float32 but where it says int8; {THREADS} threads for each; {rounds} rounds."
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(f"make bench-t5: {error}")
