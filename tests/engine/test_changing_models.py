"""An engine loads and frees models while it serves others."""

import dataclasses
import errno
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engine import GOLDENS, TIMEOUT, Bench, few_rungs
from harness.waiting import wait_until
from shaperouter_service.checkpoints.digest import model_digest
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import ModelUnloadingError, StartupError, UnknownModelError
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.system.populated_memory import PopulatedMemory
from shaperouter_service.worker import memory_need, models
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.vocabularies import Vocabularies
from shaperouter_service.worker.warm_up import WarmUp

SERVED, COMING = "gpt2-odd-heads", "gpt2-untied"
DIRECTORY = GOLDENS / COMING


@pytest.fixture
def bench(kept_compilations: CompileCache) -> Bench:
    models = {SERVED: GOLDENS / SERVED}
    return Bench(models, ladders=few_rungs, compile_cache=kept_compilations)


def load(bench: Bench, directory: Path = DIRECTORY) -> None:
    bench.engine.load(COMING, directory, model_digest(directory))


@pytest.fixture
def _often_switched() -> Iterator[None]:
    """Threads take turns as often as they can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_often_switched")
def test_each_snapshot_describes_whole_models_while_some_come_and_go(bench: Bench) -> None:
    ended = threading.Event()
    seen: set[tuple[str, ...]] = set()

    def change() -> None:
        try:
            for _ in range(5):
                load(bench)
                # A load and its end may pass between two snapshots.
                wait_until(lambda: (SERVED, COMING) in seen)
                bench.engine.unload(COMING)
        finally:
            ended.set()

    changing = threading.Thread(target=change)
    changing.start()
    while not ended.is_set():
        models = bench.engine.snapshot("worker-0", "1").models
        seen.add(tuple(model.name for model in models))
    changing.join()
    assert seen == {(SERVED,), (SERVED, COMING)}


def test_a_model_that_is_freed_returns_its_waiting_runs_for_other_workers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(bench)
    monkeypatch.setattr(LaneScheduler, "admit", lambda _: None)
    waiting = bench.submit(COMING, [1], max_new_tokens=2)
    bench.engine.unload(COMING)
    with pytest.raises(ModelUnloadingError, match=f"model {COMING} is being unloaded"):
        waiting.wait()
    assert not bench.defects


def test_a_load_whose_thread_gets_no_file_descriptor_fails_and_can_be_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as starved:
        starved.setattr(models, "enter_thread", fail)
        with pytest.raises(OSError, match="Too many open files"):
            load(bench)
    load(bench)


def test_a_load_needs_no_memory_for_prefixes_that_are_cached_already(
    kept_compilations: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(
        {SERVED: GOLDENS / SERVED},
        ladders=few_rungs,
        prefix_cache_bytes=10**7,
        compile_cache=kept_compilations,
    )
    bench.submit(SERVED, list(range(40)), max_new_tokens=1).wait()
    wait_until(lambda: bench.parts.prefixes.reports[SERVED].bytes > 0)
    needed: list[int] = []

    def require(*_: object, prefix_growth: int, **__: object) -> None:
        needed.append(prefix_growth)

    monkeypatch.setattr(memory_need, "require_memory", require)
    load(bench)
    assert needed == [10**7 - bench.parts.prefixes.reports[SERVED].bytes]


@pytest.mark.parametrize("error", [MemoryError(), StartupError("no room")])
def test_a_load_that_fails_at_its_graphs_leaves_nothing_and_can_be_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: WarmUp) -> None:
        raise error

    first = list(bench.parts.graphs.budget.first)
    with monkeypatch.context() as starved:
        starved.setattr(WarmUp, "start", fail)
        with pytest.raises(type(error)):
            load(bench)
    assert [model.name for model in bench.engine.snapshot("w", "i").models] == [SERVED]
    assert list(bench.parts.graphs.budget.first) == first
    load(bench)


def test_a_frozen_worker_makes_the_declared_graphs_of_a_revision(
    kept_compilations: CompileCache,
) -> None:
    declared = Signature(model=SERVED, kind=GraphKind.PREFILL, rows=1, length=16, beams=1)
    directory = GOLDENS / SERVED
    bench = Bench(
        {SERVED: directory},
        compile_cache=kept_compilations,
        compile_mode="frozen",
        warm=[declared],
    )
    wait_until(lambda: bench.engine.warm, timeout=TIMEOUT)
    revision = f"{SERVED}@0123456789ab"
    warm_up = bench.engine.load(revision, directory, model_digest(directory))
    wait_until(lambda: warm_up.is_done, timeout=TIMEOUT)
    ready = [
        graph.signature
        for graph in bench.engine.snapshot("w", "i").graphs
        if graph.state is GraphState.READY
    ]
    assert dataclasses.replace(declared, model=revision) in ready


@pytest.mark.usefixtures("native_kernels")
def test_prefetched_memory_belongs_to_the_weights_that_were_read_into_it(
    kept_compilations: CompileCache,
) -> None:
    prefetched = {SERVED: PopulatedMemory(2**20)}
    memory = weakref.ref(prefetched[SERVED])
    bench = Bench(
        {SERVED: GOLDENS / SERVED},
        ladders=few_rungs,
        compile_cache=kept_compilations,
        prefetched=prefetched,
    )
    # Nothing else holds it, so an unloaded model leaves nothing behind.
    wait_until(lambda: memory() is None)
    assert bench.parts.kernels


def test_a_run_of_a_model_that_is_gone_is_refused(bench: Bench) -> None:
    with pytest.raises(UnknownModelError, match=COMING):
        bench.submit(COMING, [1], max_new_tokens=2)


def test_a_model_that_was_freed_while_a_request_waited_for_its_vocabulary_is_unloading() -> None:
    vocabularies = Vocabularies({})
    with pytest.raises(ModelUnloadingError, match=COMING):
        vocabularies.stop_tokens(COMING, 8, ["x"], continues_text=False)
