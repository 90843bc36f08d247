"""Graphs update their caches in place, and the table compiles each once, the urgent first."""

import re
import threading

import pytest

from harness.engine import GOLDENS
from harness.waiting import wait_until
from shaperouter_service.decoding import Lane, decode_program, prefill_program
from shaperouter_service.decoding.program import Program
from shaperouter_service.graphs import GraphState, GraphTable, NoCover
from shaperouter_service.models import load_model
from shaperouter_service.routing.signatures import GraphKind, Signature


@pytest.fixture(scope="module")
def lane() -> Lane:
    return Lane(load_model("tiny", GOLDENS / "gpt2-odd-heads"), slots=4)


@pytest.fixture(scope="module", params=list(GraphKind))
def program(request: pytest.FixtureRequest, lane: Lane) -> Program:
    if request.param is GraphKind.PREFILL:
        program = prefill_program("prefill", lane, rows=1, length=16)
    else:
        program = decode_program("decode", lane, rows=2, length=64)
    program.trace()
    return program


def test_every_cache_is_an_alias_of_its_result(program: Program, lane: Lane) -> None:
    hlo = program.compiler_ir("optimized_hlo")
    cache = _hlo_shape(lane)
    parameters = re.findall(rf"= {cache}\S* parameter\((\d+)\)", _entry(hlo))
    assert len(parameters) == 2 * lane.model.family.layers
    aliased = re.findall(r"\((\d+), \{\}, may-alias\)", hlo.splitlines()[0])
    assert set(parameters) <= set(aliased)


def test_no_cache_is_copied(program: Program, lane: Lane) -> None:
    hlo = program.compiler_ir("optimized_hlo")
    assert not re.findall(rf"= {_hlo_shape(lane)}\S* copy\(", hlo)


def test_the_call_that_compiles_a_prefill_can_skip_the_prompt(lane: Lane) -> None:
    """It holds the lane's variables, so that every stream would wait for as long as it runs."""
    program = prefill_program("prefill", lane, rows=1, length=32)
    program.trace()
    assert " conditional(" in _entry(program.compiler_ir("optimized_hlo"))


def _hlo_shape(lane: Lane) -> str:
    return re.escape(f"f32[{','.join(map(str, lane.keys[0].shape))}]")


def _entry(hlo: str) -> str:
    return hlo[hlo.index("ENTRY") :]


class FakeProgram:
    """A program whose compilation takes until the test lets it go on."""

    def __init__(self, error: str = "") -> None:
        self.traces = 0
        self.go_on = threading.Event()
        self._error = error

    def trace(self) -> None:
        self.traces += 1

    def compile(self) -> None:
        assert self.go_on.wait(60)
        if self._error:
            raise RuntimeError(self._error)


def _signature(length: int, rows: int = 1) -> Signature:
    return Signature(model="m", kind=GraphKind.DECODE, beams=1, rows=rows, length=length)


class Table:
    """A table of fake programs, with one compile thread."""

    def __init__(self, error: str = "") -> None:
        self.programs: dict[Signature, FakeProgram] = {}
        self.error = error
        self.changes = 0
        self.table = GraphTable(self._build, threads=1, on_change=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def _build(self, signature: Signature) -> Program:
        self.programs[signature] = FakeProgram(self.error)
        return self.programs[signature]  # type: ignore[return-value]


def test_a_signature_asked_for_by_many_is_compiled_once() -> None:
    fake = Table()
    askers = [
        threading.Thread(target=fake.table.want, args=[_signature(64)], kwargs={"urgent": True})
        for _ in range(16)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    fake.programs[_signature(64)].go_on.set()
    graph = fake.table.want(_signature(64), urgent=True)
    wait_until(lambda: graph.state is GraphState.READY)
    assert (len(fake.programs), graph.program.traces, graph.compiles) == (1, 1, 1)
    assert fake.changes == 2


def test_what_a_request_waits_for_goes_before_what_was_asked_earlier() -> None:
    fake = Table()
    first = fake.table.want(_signature(64), urgent=True)
    wait_until(lambda: first.state is GraphState.COMPILING)
    later = [fake.table.want(_signature(length), urgent=False) for length in (128, 256)]
    raised = fake.table.want(_signature(256), urgent=True)
    assert fake.table.queue_depth == 2
    for program in fake.programs.values():
        if program is not fake.programs[_signature(128)]:
            program.go_on.set()
    wait_until(lambda: raised.state is GraphState.READY)
    assert later[0].state is not GraphState.READY
    fake.programs[_signature(128)].go_on.set()
    wait_until(lambda: later[0].state is GraphState.READY)
    assert fake.table.queue_depth == 0


def test_a_failed_graph_keeps_its_reason_and_covers_nothing() -> None:
    fake = Table(error="out of memory")
    graph = fake.table.want(_signature(64), urgent=True)
    fake.programs[_signature(64)].go_on.set()
    wait_until(lambda: graph.state is GraphState.FAILED)
    assert (graph.error, graph.failures, graph.compiles) == ("out of memory", 1, 0)
    assert isinstance(fake.table.cover(_signature(64)), NoCover)


def test_the_cheapest_ready_graph_that_is_large_enough_covers() -> None:
    fake = Table()
    for signature in (_signature(256, rows=4), _signature(128, rows=2), _signature(64)):
        graph = fake.table.want(signature, urgent=True)
        fake.programs[signature].go_on.set()
        wait_until(lambda graph=graph: graph.state is GraphState.READY)
    cover = fake.table.cover(_signature(100))
    assert not isinstance(cover, NoCover)
    assert cover.signature == _signature(128, rows=2)
    assert isinstance(fake.table.cover(_signature(512)), NoCover)
