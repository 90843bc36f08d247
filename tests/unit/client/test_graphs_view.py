"""The screen of ``shaperouter graphs --watch``, and its figures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.console import Console
from rich.screen import Screen

from shaperouter import Graph, GraphKind, GraphState, Histogram, Signature
from shaperouter._cli._activity import INTERVAL, Activity
from shaperouter._cli._graphs_view import GraphsView
from shaperouter._cli._lattice import lattices

NOTHING = Histogram(bounds=(1.0,), counts=(0, 0), sum=0.0)
READY, COMPILING, COLD = GraphState.READY, GraphState.COMPILING, GraphState.COLD
QUEUED, TRACING, FAILED = GraphState.QUEUED, GraphState.TRACING, GraphState.FAILED


def graph(  # noqa: PLR0917 (a shape, and a state)
    rows: int = 1,
    length: int = 64,
    state: GraphState = READY,
    worker: str = "worker-0",
    kind: GraphKind = GraphKind.DECODE,
    beams: int = 1,
    *,
    seconds: float = 0.0,
    missed: float = 0.0,
    padded: float = 0.0,
    error: str = "",
    left: float = 0.0,
    first: bool = False,
) -> Graph:
    return Graph(
        signature=Signature(model="gpt2", kind=kind, rows=rows, length=length, beams=beams),
        worker=worker,
        state=state,
        traces=1,
        compiles=1,
        failures=0,
        trace_seconds=0.0,
        compile_seconds=NOTHING,
        stall_seconds=NOTHING,
        device_seconds=Histogram(bounds=(1.0,), counts=(1, 0), sum=seconds),
        error=error,
        loads=0,
        load_seconds=0.0,
        step_seconds=0.0,
        missed_seconds=missed,
        padded_seconds=padded,
        state_seconds=0.0,
        retry_seconds=0.0,
        left_seconds=left,
        before_ready=first,
    )


def picture(
    graphs: Sequence[Graph], *, width: int = 80, height: int = 60, activity: Activity | None = None
) -> list[str]:
    """The lines of a screen that shows graphs, without empty lines at the end."""
    if activity is None:
        activity = Activity()
        activity.update(graphs, 0.0)
    console = Console(
        width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False
    )
    with console.capture() as capture:
        console.print(Screen(GraphsView("127.0.0.1:50051", graphs, activity)))
    return [line.rstrip() for line in capture.get().rstrip().splitlines()]


def section(lines: Sequence[str], title: str) -> list[str]:
    """The lines of a lattice, from its heading to the next empty line."""
    first = next(i for i, line in enumerate(lines) if line.startswith(title))
    last = next(i for i, line in enumerate(lines) if i > first and not line)
    return list(lines[first:last])


# Lattices.


def test_lattice_has_one_model_kind_and_beam_width() -> None:
    graphs = [
        graph(kind=GraphKind.PREFILL),
        graph(1, 64),
        graph(4, 64),
        graph(1, 256),
        graph(1, 256, worker="worker-1"),
        graph(1, 64, beams=4),
    ]
    made = lattices(graphs)
    assert [lattice.title for lattice in made] == [
        "gpt2 prefill",
        "gpt2 decode",
        "gpt2 decode beams 4",
    ]
    assert (made[1].rows, made[1].lengths) == ([1, 4], ["64", "256"])
    assert (4, "256") not in made[1].cells
    assert len(made[1].cells[1, "256"].graphs) == 2


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ([READY, COLD], READY),
        ([READY, FAILED], FAILED),
        ([FAILED, TRACING, READY], TRACING),
        ([TRACING, COMPILING], COMPILING),
        ([QUEUED, TRACING], TRACING),
        ([FAILED, QUEUED, READY], QUEUED),
        ([COLD, COLD], COLD),
    ],
)
def test_cell_has_its_most_interesting_state(states: list[GraphState], told: GraphState) -> None:
    (lattice,) = lattices([graph(state=state) for state in states])
    assert lattice.cells[1, "64"].state is told


# Activity.


def test_shares_are_of_the_device_time_since_the_first_list() -> None:
    activity = Activity()
    activity.update([graph(1, seconds=100.0), graph(2, seconds=50.0)], now=10.0)
    activity.update([graph(1, seconds=103.0), graph(2, seconds=51.0)], now=14.0)
    assert activity.share(graph(1).signature) == 0.75
    assert activity.share(graph(2).signature) == 0.25
    assert activity.utilization("worker-0") == 1.0


def test_old_device_time_is_forgotten() -> None:
    activity = Activity()
    activity.update([graph(seconds=0.0)], now=0.0)
    activity.update([graph(seconds=2.0)], now=2.0)
    activity.update([graph(seconds=2.0)], now=2.0 + INTERVAL)
    assert activity.share(graph().signature) == 0.0
    assert activity.utilization("worker-0") == 0.0


def test_signature_on_several_workers_has_one_share() -> None:
    activity = Activity()
    names = ("worker-0", "worker-1")
    for now, seconds in ((0.0, 0.0), (4.0, 1.0)):
        activity.update([graph(worker=name, seconds=seconds) for name in names], now=now)
    assert activity.share(graph().signature) == 1.0
    assert [activity.utilization(name) for name in names] == [0.25, 0.25]


def test_new_graph_counts_from_zero() -> None:
    activity = Activity()
    activity.update([graph(1)], now=0.0)
    activity.update([graph(1), graph(2, seconds=1.0)], now=4.0)
    assert activity.share(graph(2).signature) == 1.0


def test_restarted_worker_counts_from_zero() -> None:
    activity = Activity()
    activity.update([graph(seconds=100.0)], now=0.0)
    activity.update([graph(seconds=1.0)], now=4.0)
    assert activity.utilization("worker-0") == 0.25


def test_new_worker_has_no_utilization_yet() -> None:
    activity = Activity()
    activity.update([graph(seconds=1.0)], now=0.0)
    activity.update([graph(seconds=1.0), graph(2, worker="new", seconds=500.0)], now=4.0)
    assert activity.utilization("new") is None
    assert activity.share(graph(2).signature) == 0.0
    assert activity.workers == ["new", "worker-0"]


def test_utilization_is_unknown_before_the_second_list() -> None:
    activity = Activity()
    activity.update([graph(seconds=5.0)], now=0.0)
    assert activity.utilization("worker-0") is None
    assert activity.share(graph().signature) == 0.0


# The picture.


def test_grid_has_rows_by_lengths_with_a_symbol_for_each_state() -> None:
    graphs = [
        graph(1, 64, READY),
        graph(1, 128, COMPILING),
        graph(1, 1024, TRACING),
        graph(4, 64, FAILED),
        graph(4, 128, COLD),
        graph(4, 1024, QUEUED),
    ]
    heading, lengths, first, second, _ = section(picture(graphs), "gpt2 decode")
    assert heading == "gpt2 decode · 1 of 6 ready"
    assert lengths.split() == ["rows", "64", "128", "1024"]
    assert first.split() == ["1", "●", "◐", "○"]
    assert second.split() == ["4", "✗", "·", "◌"]
    # Columns stand below one another.
    assert [lengths.index(each) for each in ("64", "128", "1024")] == [
        first.index(each) for each in "●◐○"
    ]


def test_cell_counts_ready_workers_if_there_are_several() -> None:
    states = {64: [READY, READY, COLD], 128: [READY, COMPILING, COLD], 256: [COLD] * 3}
    graphs = [
        graph(1, length, state, f"worker-{index}")
        for length, each in states.items()
        for index, state in enumerate(each)
    ]
    assert section(picture(graphs), "gpt2 decode")[2].split() == ["1", "2/3", "◐1/3", "·"]


def test_queued_graphs_are_on_the_way() -> None:
    lines = picture([graph(1), graph(2, state=QUEUED), graph(4, state=COMPILING)])
    worker = next(line for line in lines if line.startswith("worker-0"))
    assert worker.split()[2:5] == ["1", "2", "0"]


def test_the_legend_fits_80_columns() -> None:
    legend = picture([graph()])[-1]
    assert [state for state in GraphState if state not in legend] == [GraphState.UNKNOWN]
    assert legend.endswith("last 5 s")


def test_cells_show_their_share_of_device_time() -> None:
    activity = Activity()
    activity.update([graph(1), graph(2), graph(4)], now=0.0)
    graphs = [graph(1, seconds=3.0), graph(2, seconds=1.0), graph(4, seconds=0.01)]
    activity.update(graphs, now=8.0)
    lines = picture(graphs, activity=activity)
    assert [line.split() for line in section(lines, "gpt2 decode")[2:]] == [
        ["1", "●", "75%"],
        ["2", "●", "25%"],
        ["4", "●"],
    ]
    worker = next(line for line in lines if line.startswith("worker-0"))
    assert worker.split() == ["worker-0", "50%", "3", "0", "0", "4.0"]


def test_heading_has_the_costs_and_the_costliest_shapes() -> None:
    graphs = [
        graph(1, 64, COLD, missed=1.0),
        graph(2, 64, COLD, missed=2.5),
        graph(4, 64, padded=0.5),
        graph(4, 64, worker="worker-1", padded=0.75),
    ]
    assert section(picture(graphs), "gpt2 decode")[0] == (
        "gpt2 decode · 2 of 4 ready · padded 1.2 s (4x64) · missed 3.5 s (2x64)"
    )


def test_failure_takes_one_line() -> None:
    graphs = [graph(1, 64, FAILED, error="out of\nmemory: " + "x" * 200)]
    line = section(picture(graphs), "gpt2 decode")[-1]
    assert line.startswith("✗ 1x64 on worker-0: out of memory: xxx")
    assert len(line) == 80
    assert line.endswith("…")


def test_cold_lattices_take_one_line() -> None:
    graphs = [graph(), *(graph(rows, 64, COLD, beams=8) for rows in (1, 2))]
    lines = picture(graphs)
    assert "All cold: gpt2 decode beams 8 (2)" in lines
    assert not any(line.startswith("gpt2 decode beams 8") for line in lines)


def test_names_are_shown_unchanged() -> None:
    lines = picture([graph(state=FAILED, worker="[bold]:smile:", error="[red]")])
    assert "✗ 1x64 on [bold]:smile:: [red]" in lines


LADDER = [16, 24, 32, 48, 64, 88, 128, 256, 512, 1024]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_column_is_shown_on_a_narrow_terminal(width: int, workers: int) -> None:
    graphs = [
        graph(rows, length, READY, f"worker-{index}")
        for rows in (1, 2)
        for length in LADDER
        for index in range(workers)
    ]
    lines = picture(graphs, width=width)
    assert max(map(len, lines)) <= width
    shown = [line.split() for line in lines]
    lengths = [each for line in shown if line[:1] == ["rows"] for each in line[1:]]
    assert lengths == [str(length) for length in LADDER]
    cell = "●" if workers == 1 else "3/3"
    assert sum(line.count(cell) for line in shown if line[:1] in (["1"], ["2"])) == 20


def test_the_default_ladders_of_one_worker_fit_80_columns_in_one_grid() -> None:
    activity = Activity()
    activity.update([graph(1, length) for length in LADDER], 0.0)
    graphs = [graph(1, length, seconds=1.0) for length in LADDER]
    activity.update(graphs, 20.0)
    lines = picture(graphs, activity=activity)
    assert len([line for line in lines if line.startswith("rows")]) == 1
    assert sum(line.count("10%") for line in lines) == 10


def test_low_terminal_shows_workers_and_counts_missing_lines() -> None:
    graphs = [graph(rows, 64) for rows in range(1, 41)]
    lines = picture(graphs, height=24)
    assert len(lines) == 24
    assert "… 25 more lines: enlarge the terminal, or choose a --model" in lines
    assert any(line.startswith("worker-0") for line in lines)
    assert lines[-1].startswith("● ready")


def test_view_without_graphs() -> None:
    lines = picture([])
    assert lines[0] == "127.0.0.1:50051 · 0 workers · Ctrl-C ends"


def test_starting_worker_shows_its_progress() -> None:
    lines = picture(
        [
            graph(length=64, first=True),
            graph(length=128, state=COMPILING, first=True, left=12.2),
            graph(length=256, state=QUEUED, first=True, left=40.0),
            graph(length=512, state=QUEUED, left=99.0),
            graph(length=64, first=True, worker="worker-1"),
        ]
    )
    starts = [line for line in lines if " starts: " in line]
    assert starts == ["worker-0 starts: 1 of 3 graphs ready, about 40 s left"]
