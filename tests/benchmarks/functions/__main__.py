"""Measures text embeddings by every contestant in turn, and reports the results.

Writes build/bench/functions.json and functions.md; with --publish also the sections in
docs/measurements.md.
"""

import argparse
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.conditions import conditions
from common.files import write_figures
from common.paths import REPOSITORY, THREADS, WORK
from common.processes import PeerError, PeerProcess
from common.publishing import publish_section
from common.tables import NOTHING, Spread, Table, Target, quantile, targets_table
from common.terminal import Tell, console, telling

from .documentation import Search, documentation
from .rankings import Ranked, rankings_table
from .workloads import Workload, workloads

MODEL = REPOSITORY / ".venvs" / "tools" / "models" / "all-MiniLM-L6-v2"
ROUNDS = 5
# A service compiles tighter graphs while it is called; everybody gets the same calls.
WARM_UPS = 6
# Seconds before each turn, for what the contestant before it still does in the background.
PAUSE = 0.3
RESULT, REPORT = WORK / "functions.json", WORK / "functions.md"
HEADING = "## Text embeddings against others (`make bench-functions`)"
RANKINGS_HEADING = "## Rankings in int8 (`make bench-functions BENCH=--rankings`)"
BEFORE = "## What was missed, and why"
QUERIES, PASSAGES = 500, 1000
# Texts of a call when rankings are compared.
SEARCHED_TOGETHER = 128
# Smallest cosine to the embeddings of PyTorch that is right: in float32, and else.
EXACT, ROUNDED = 0.9999, 0.8


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant.

    Attributes:
        label: Label in tables.
        environment: Folder of its environment, relative to the repository.
        module: Its module in this package.
        options: Arguments of its module.
        exact: Whether it computes in float32.
    """

    label: str
    environment: str
    module: str
    options: Sequence[str] = ()
    exact: bool = True


def _entry(label: str, module: str, *options: str, exact: bool = True) -> Entry:
    return Entry(
        label=label,
        environment=".venvs/bench-encoders",
        module=module,
        options=options,
        exact=exact,
    )


TORCH = _entry("sentence-transformers, PyTorch", "peer_torch")
OURS = Entry(
    label="Shaperouter, gRPC",
    environment=".venv",
    module="peer_shaperouter",
    options=["--dtype=float32"],
)
OURS_INT8 = Entry(
    label="Shaperouter, gRPC, int8",
    environment=".venv",
    module="peer_shaperouter",
    options=["--dtype=int8"],
    exact=False,
)
ENTRIES = (
    TORCH,
    OURS,
    OURS_INT8,
    _entry("ONNX Runtime", "peer_onnx", "--dtype=float32", f"--work={WORK}"),
    _entry("ONNX Runtime, int8", "peer_onnx", "--dtype=int8", f"--work={WORK}", exact=False),
    _entry("OpenVINO, float32", "peer_openvino", "--dtype=float32"),
    _entry("OpenVINO, its default", "peer_openvino", "--dtype=default", exact=False),
    _entry("OpenVINO, int8", "peer_openvino", "--dtype=int8", exact=False),
    Entry(label="tf.function, XLA", environment=".venvs/bench-tf", module="peer_tf_function"),
)


@dataclass(kw_only=True)
class Measured:
    """All figures, by contestant and, but for `start`, by workload.

    Attributes:
        seconds: Of each round.
        latencies: Of each call of the last round, in seconds.
        ways: The fastest way to cut and join texts.
        cosines: The smallest cosine to PyTorch's embeddings.
        first: Seconds of the first call of a new process, after it was loaded.
        longest: The longest call of the workload's first round, in seconds.
        versions: Of packages.
        failures: Reasons, by contestant.
    """

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    latencies: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    ways: dict[str, dict[str, str]] = field(default_factory=dict)
    cosines: dict[str, dict[str, float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    longest: dict[str, dict[str, float]] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ratios(self, workload: Workload, entry: Entry, other: Entry) -> Spread:
        """The ratios of a contestant's times to another's, round by round."""
        times = self.seconds[entry.label][workload.name], self.seconds[other.label][workload.name]
        return Spread.of([ours / theirs for ours, theirs in zip(*times, strict=True)])

    def fastest(self, workload: Workload, entries: Sequence[Entry]) -> Entry | None:
        """The contestant with the least median time."""
        took = {
            entry.label: Spread.of(times[workload.name]).median
            for entry in entries
            if (times := self.seconds.get(entry.label, {})).get(workload.name)
        }
        return min(entries, key=lambda each: took.get(each.label, float("inf"))) if took else None


def measure(
    entries: Sequence[Entry], everything: Sequence[Workload], rounds: int, tell: Tell
) -> Measured:
    """Loads and warms up all contestants, then calls them in turn, round after round."""
    measured = Measured()
    peers: dict[str, PeerProcess] = {}
    try:
        for entry in entries:
            with _noting(measured, entry):
                tell(f"loading {entry.label}")
                peers[entry.label] = peer = _started(entry)
                measured.versions[entry.label] = peer.versions
                way = peer.greeting["ways"][0]
                measured.first[entry.label] = _ask(peer, everything[0], way, calls=1)["seconds"]
        reference: dict[str, Any] = {}
        for workload in everything:
            for entry in entries:
                if entry.label in peers:
                    with _noting(measured, entry, peers):
                        tell(f"warming up {entry.label}: {workload.label}")
                        answer = _warm_up(measured, entry, peers[entry.label], workload)
                        reference.setdefault(workload.name, answer["vectors"])
                        _compare(measured, entry, workload, answer, reference[workload.name])
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            for workload in everything:
                order = [entry for entry in entries if entry.label in peers]
                # The order changes, so that each contestant runs after every other one.
                first = number % len(order)
                for entry in order[first:] + order[:first]:
                    with _noting(measured, entry, peers):
                        time.sleep(PAUSE)
                        way = measured.ways[entry.label][workload.name]
                        answer = _ask(peers[entry.label], workload, way)
                        times = measured.seconds.setdefault(entry.label, {})
                        times.setdefault(workload.name, []).append(answer["seconds"])
                        calls = measured.latencies.setdefault(entry.label, {})
                        calls[workload.name] = answer["latencies"]
    finally:
        for peer in peers.values():
            peer.close()
    return measured


def rank(entries: Sequence[Entry], search: Search, tell: Tell) -> dict[str, Ranked]:
    """Ranks the passages for each query by the embeddings of each contestant."""
    texts = [*search.queries, *search.passages]
    ranked = {}
    for entry in entries:
        tell(f"ranking by {entry.label}")
        vectors: list[list[float]] = []
        with closing(_started(entry)) as peer:
            for start in range(0, len(texts), SEARCHED_TOGETHER):
                call = texts[start : start + SEARCHED_TOGETHER]
                part = Workload(name="search", label="search", calls=[call], callers=1)
                vectors += _ask(peer, part, peer.greeting["ways"][0])["vectors"]
        ranked[entry.label] = Ranked.of(vectors, len(search.queries))
    return ranked


@contextmanager
def _noting(
    measured: Measured, entry: Entry, peers: dict[str, PeerProcess] | None = None
) -> Iterator[None]:
    """Records a contestant's failure, and continues without it."""
    try:
        yield
    except PeerError as error:
        measured.failures[entry.label] = str(error)
        measured.seconds.pop(entry.label, None)
        if peers is not None:
            peers.pop(entry.label).close()


def _started(entry: Entry) -> PeerProcess:
    return PeerProcess(
        name=f"functions-{entry.label}".replace(" ", "-").replace(",", ""),
        environment=entry.environment,
        module=f"{__package__}.{entry.module}",
        arguments=[f"--model={MODEL}", f"--threads={THREADS}", *entry.options],
    )


def _ask(
    peer: PeerProcess, workload: Workload, way: str, *, calls: int | None = None
) -> dict[str, Any]:
    return peer.ask(
        {
            "task": "embed",
            "calls": [list(texts) for texts in workload.calls[:calls]],
            "callers": workload.callers,
            "way": way,
        }
    )


def _warm_up(
    measured: Measured, entry: Entry, peer: PeerProcess, workload: Workload
) -> dict[str, Any]:
    """Calls a contestant until it is warm, in each of its ways; notes the fastest."""
    took = {}
    for way in peer.greeting["ways"]:
        for number in range(WARM_UPS // len(peer.greeting["ways"])):
            answer = _ask(peer, workload, way)
            if number == 0:
                longest = measured.longest.setdefault(entry.label, {})
                longest.setdefault(workload.name, max(answer["latencies"]))
        took[way] = answer["seconds"]
    measured.ways.setdefault(entry.label, {})[workload.name] = min(took, key=lambda way: took[way])
    return answer


def _compare(
    measured: Measured,
    entry: Entry,
    workload: Workload,
    answer: Mapping[str, Any],
    reference: Sequence[Sequence[float]],
) -> None:
    cosine = float((np.array(answer["vectors"]) * np.array(reference)).sum(axis=1).min())
    measured.cosines.setdefault(entry.label, {})[workload.name] = cosine
    if cosine < (EXACT if entry.exact else ROUNDED):
        raise PeerError(f"{workload.label}: a cosine to PyTorch's embedding is {cosine:.4f}")


def tables(
    measured: Measured, entries: Sequence[Entry], everything: Sequence[Workload]
) -> list[Table]:
    """The report of the measurements."""
    there = [entry for entry in entries if entry.label in measured.seconds]
    head = ["", *(workload.label for workload in everything)]

    def rows(cell: Any) -> list[list[str]]:
        return [[entry.label, *(cell(entry, each) for each in everything)] for entry in there]

    def speed(entry: Entry, workload: Workload) -> str:
        times = measured.seconds[entry.label][workload.name]
        return Spread.of([workload.texts / seconds for seconds in times]).show(".0f")

    def latencies(entry: Entry, workload: Workload) -> str:
        calls = [1e3 * seconds for seconds in measured.latencies[entry.label][workload.name]]
        return f"{quantile(calls, 0.5):.1f}, {quantile(calls, 0.99):.1f}"

    made = [
        Table(
            title="Texts a second",
            head=head,
            rows=rows(speed),
            note="Median of the rounds, and the largest deviation from it. The service is always "
            "called over gRPC. One caller calls a library in the library's own process; 32 callers "
            "call a plain gRPC server that joins the texts that wait. A library gets a list of "
            "texts in the fastest of three ways: whole, or sorted by length and cut into chunks of "
            "8 or of 1.",
        ),
        Table(
            title="Milliseconds of a call: median, 99th percentile",
            head=head,
            rows=rows(latencies),
            note="Of the last round.",
        ),
        Table(
            title="Milliseconds of the first call of a new process, and the longest of each first "
            "round",
            head=["", "first call", *head[1:]],
            rows=[
                [
                    entry.label,
                    f"{1e3 * measured.first[entry.label]:.0f}",
                    *(
                        f"{1e3 * measured.longest[entry.label][each.name]:.0f}"
                        for each in everything
                    ),
                ]
                for entry in there
            ],
            note="After loading. A compilation that a call waits for shows here.",
        ),
        Table(
            title="Smallest cosine to the embeddings of PyTorch, and the fastest way",
            head=head,
            rows=rows(
                lambda entry, each: (
                    f"{measured.cosines[entry.label][each.name]:.5f}, "
                    f"{measured.ways[entry.label][each.name]}"
                )
            ),
        ),
        Table(
            title="Not measured",
            head=["", "reason"],
            rows=[[label, reason] for label, reason in measured.failures.items()],
        ),
        targets_table(targets(measured, entries, everything)),
    ]
    return [table for table in made if table.rows]


def targets(
    measured: Measured, entries: Sequence[Entry], everything: Sequence[Workload]
) -> list[Target]:
    """The targets: faster than the fastest of the others."""
    others = [entry for entry in entries if entry not in (OURS, OURS_INT8)]
    found = []
    for entry, peers, limit, name in (
        (OURS, [other for other in others if other.exact], 0.9, "float32"),
        (OURS_INT8, others, 0.85, "int8"),
    ):
        for workload in everything[1:]:
            peer = measured.fastest(workload, peers)
            known = peer is not None and entry.label in measured.seconds
            label = peer.label if peer else NOTHING
            found.append(
                Target(
                    text=f"{workload.label}, {name}: time ÷ that of the fastest, {label}",
                    limit=limit,
                    figure=measured.ratios(workload, entry, peer) if peer and known else None,
                )
            )
    return found


def main() -> int:
    """Runs the benchmark."""
    labels = [entry.label for entry in ENTRIES]
    parser = argparse.ArgumentParser(
        prog="make bench-functions", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds in turn (default: {ROUNDS})"
    )
    parser.add_argument(
        "--contestant",
        action="append",
        choices=labels,
        help="who takes part besides PyTorch; may be given several times (default: all)",
    )
    parser.add_argument("--rankings", action="store_true", help="compare only rankings")
    parser.add_argument("--publish", action="store_true", help="publish the result in docs/")
    arguments = parser.parse_args()
    wanted = {TORCH.label, *(arguments.contestant or labels)}
    entries = [entry for entry in ENTRIES if entry.label in wanted]
    WORK.mkdir(parents=True, exist_ok=True)
    failures: Mapping[str, str] = {}
    if not arguments.rankings:
        failures = _report_speed(entries, arguments.rounds, publish=arguments.publish)
    working = [entry for entry in entries if entry.label not in failures]
    _report_rankings(working, publish=arguments.publish)
    if arguments.publish:
        console.print("Published in docs/measurements.md.")
    return int(bool(failures))


def _report_speed(entries: Sequence[Entry], rounds: int, *, publish: bool) -> Mapping[str, str]:
    """Measures and reports the time of embeddings; returns why contestants failed."""
    found = conditions()
    everything = workloads(MODEL)
    with telling() as tell:
        measured = measure(entries, everything, rounds, tell)
    write_figures({"conditions": found, "rounds": rounds, **vars(measured)}, RESULT)
    made = tables(measured, entries, everything)
    for table in made:
        table.show(console)
    parts = [_conditions(found, rounds), *(table.markdown() for table in made)]
    text = "\n\n".join(parts)
    REPORT.write_text(text + "\n", encoding="utf-8")
    console.print(f"Raw figures: {RESULT.relative_to(REPOSITORY)}", style="dim")
    if publish:
        publish_section(HEADING, text, before=BEFORE)
    return measured.failures


def _report_rankings(entries: Sequence[Entry], *, publish: bool) -> None:
    """Compares and reports rankings, which do not depend on how quiet the machine is."""
    search = documentation(QUERIES, PASSAGES)
    with telling() as tell:
        table = rankings_table(rank(entries, search, tell), TORCH.label)
    table.show(console)
    if publish:
        introduction = (
            f"{len(search.queries)} queries search {len(search.passages)} passages, which "
            "all-MiniLM-L6-v2 embeds: docstrings of Python\n"
            f"{platform.python_version()}'s standard library. A query is the first line of one, "
            "and what follows it is its own\npassage."
        )
        publish_section(RANKINGS_HEADING, f"{introduction}\n\n{table.markdown()}", before=BEFORE)


def _conditions(found: Mapping[str, Any], rounds: int) -> str:
    return (
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB, load "
        f"{found['load_before']:.1f} before. all-MiniLM-L6-v2 with its weights; texts of random "
        f"words, log-normal with a median of 18 words, at most 220; {THREADS} threads for each; "
        f"{rounds} rounds."
    )


if __name__ == "__main__":
    sys.exit(main())
