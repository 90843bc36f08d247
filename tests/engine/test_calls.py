"""Functions on an engine: joining and padding change no answer, and few graphs serve all calls."""

import asyncio
import random
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import served_functions
from harness.call_engine import CallBench, random_inputs
from harness.functions import FLOAT, FUNCTIONS, TestFunction
from harness.waiting import TIMEOUT, wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import (
    CallFailedError,
    ExhaustedError,
    InvalidRequestError,
    QueueFullError,
    StoppingError,
)
from shaperouter_service.functions import CallProgram
from shaperouter_service.functions.agreement import disagreement
from shaperouter_service.functions.function import Function
from shaperouter_service.functions.program import to_array
from shaperouter_service.graphs import GraphState
from shaperouter_service.inference.calls import WorkerCall, WorkerResult
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.system.drain import Drain
from shaperouter_service.wire.calls import ISOLATED_KEY, worker_call_to_message
from shaperouter_service.worker.call import Begun
from shaperouter_service.worker.padding_checks import PaddingChecks
from shaperouter_service.worker.repository import ModelRepository
from shaperouter_service.worker.server import Changes, WorkerServicer

NAMES = sorted(FUNCTIONS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("functions")
    return {name: function.save(root / name) for name, function in FUNCTIONS.items()}


@pytest.fixture(scope="module")
def bench(saved: dict[str, Path], kept_compilations: CompileCache) -> Iterator[CallBench]:
    bench = CallBench(saved, kept_compilations, check_padding=1.0)
    yield bench
    bench.stop_compiling()
    assert not bench.defects


def direct(bench: CallBench, model: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the function itself, called with nothing else."""
    function = bench.scheduler(model).model
    assert isinstance(function, Function)
    return {name: to_array(output) for name, output in function.function.call(inputs).items()}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rare"])
def test_an_answer_is_that_of_the_direct_call_whatever_else_is_computed(
    name: str, bench: CallBench, rng: random.Random
) -> None:
    requests = [random_inputs(bench.scheduler(name).model.spec, rng) for _ in range(8)]
    if FUNCTIONS[name].exact:
        # Each size has a graph of its own.
        requests = requests[:2]
    with bench.held(name):
        calls = [bench.submit(name, inputs) for inputs in requests]
    for inputs, call in zip(requests, calls, strict=True):
        assert disagreement(direct(bench, name, inputs), call.wait().outputs) == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_trial_finds_the_axes_that_cannot_be_padded(name: str, bench: CallBench) -> None:
    ladders = bench.scheduler(name).model.ladders
    exact = ["batch"] if ladders.rows is None else []
    exact += [axis.name for axis in ladders.axes if axis.ladder is None]
    assert exact == list(FUNCTIONS[name].exact)


def test_padding_that_only_counts_for_rare_values_is_found_while_serving(bench: CallBench) -> None:
    scheduler = bench.scheduler("rare")
    inputs = {"x": np.full((1, 3), 1e7, np.float32)}
    bench.submit("rare", inputs).wait()
    wait_until(lambda: scheduler.report().padding_differences == 1)
    (axis,) = scheduler.covers.ladders.axes
    assert axis.ladder is None
    result = bench.submit("rare", inputs).wait()
    assert disagreement(direct(bench, "rare", inputs), result.outputs) == ""


def test_a_check_takes_no_rounding_for_a_difference(
    bench: CallBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of one number may be small, because a sum nearly cancels."""
    scheduler = bench.scheduler("weighted")
    assert isinstance(scheduler.model, Function)
    checks = PaddingChecks(scheduler.model, 1.0, scheduler._watchdog)
    monkeypatch.setattr(scheduler, "checks", checks)
    outputs = PaddingChecks._outputs

    def rounded(checks: PaddingChecks, inputs: Mapping[str, Any]) -> dict[str, Any]:
        is_padded = inputs["x"].shape[1] > 3
        return {"y": outputs(checks, inputs)["y"] + np.float32(1e-6 if is_padded else 0.0)}

    monkeypatch.setattr(PaddingChecks, "_outputs", rounded)
    weights = np.ones((1, 3), np.float32)
    # The first answer, which only the trial's can be compared with, and the last one are 6e-6.
    for value in (-4.0, 1.0, 0.5, -4.0):
        checked = checks.checked
        bench.submit("weighted", {"x": np.full((1, 3), value, np.float32), "weights": weights})
        wait_until(partial(lambda before: checks.checked > before, checked))
    wait_until(lambda: not checks.are_due)
    assert scheduler.report().padding_differences == 0
    assert scheduler.covers.ladders.axes[0].ladder is not None


def test_a_check_that_the_function_cannot_compute_ends_nothing(
    bench: CallBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer may check sizes in Python, and raise anything."""
    tried = threading.Event()

    def fail(*_: Any) -> None:
        tried.set()
        raise ValueError("this layer needs at least 3 steps")

    monkeypatch.setattr(PaddingChecks, "_outputs", fail)
    inputs = {"x": np.ones((3, 5, 6), np.float32)}
    bench.submit("convolution", inputs).wait()
    assert tried.wait(TIMEOUT)
    monkeypatch.undo()
    result = bench.submit("convolution", inputs).wait()
    assert disagreement(direct(bench, "convolution", inputs), result.outputs) == ""
    assert not bench.defects


def test_no_call_waits_for_a_compilation_once_the_first_graph_is_there(bench: CallBench) -> None:
    bench.wait_until_ready()
    for rows, length in ((1, 1), (20, 16), (3, 9)):
        inputs = {"x": np.ones((rows, length, 6), np.float32)}
        result = bench.submit("convolution", inputs).wait()
        assert result.timings.stall_seconds == 0


def test_a_scheduler_says_whether_one_of_its_calls_waits_for_a_graph(
    bench: CallBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.wait_until_ready()
    scheduler = bench.scheduler("dense")
    missing = bench.graphs.graph(Signature.parse("dense call 8x1"))
    monkeypatch.setattr(missing, "state", GraphState.COMPILING)
    monkeypatch.setattr(scheduler.covers, "best", lambda *_: None)
    monkeypatch.setattr(scheduler.covers, "missing", lambda _: missing)
    call = bench.submit("dense", random_inputs(scheduler.model.spec, random.Random(1)))
    wait_until(lambda: scheduler.waits_for_graph)
    # It may still wait for its turn.
    with monkeypatch.context() as patch:
        patch.setattr(missing, "state", GraphState.READY)
        assert not scheduler.waits_for_graph
    monkeypatch.undo()
    bench.engine.parts.device.wake()
    call.wait()


def test_waiting_calls_of_several_clients_share_a_graph(bench: CallBench) -> None:
    bench.wait_until_ready()
    graph = bench.graphs.request_compile(Signature.parse("dense call 8x1"), urgent=True)
    wait_until(lambda: graph.state is GraphState.READY)
    before = sum(graph.device_seconds.counts)
    with bench.held("dense"):
        calls = [
            bench.submit("dense", {"x": np.full((1, 6), index, np.float32)}, client=str(index))
            for index in range(8)
        ]
    for call in calls:
        assert [use.served.rows for use in call.wait().graphs] == [8]
    assert sum(graph.device_seconds.counts) == before + 1


def test_only_calls_with_the_same_inputs_without_rows_are_joined(bench: CallBench) -> None:
    bench.wait_until_ready()
    graph = bench.graphs.request_compile(Signature.parse("limited call 4x1"), urgent=True)
    wait_until(lambda: graph.state is GraphState.READY)
    before = sum(graph.device_seconds.counts)
    limits = [0.0, 200.0, 0.0]
    with bench.held("limited"):
        calls = [
            bench.submit(
                "limited", {"x": np.ones((1, 3), np.float32), "limit": np.array(limit, np.float32)}
            )
            for limit in limits
        ]
    assert [call.wait().outputs["y"][0, 0] for call in calls] == [1, 2, 1]
    # The first and the third together.
    assert sum(graph.device_seconds.counts) == before + 1


def test_a_call_whose_parts_have_different_sizes_fails_alone(tmp_path: Path) -> None:
    """The sizes depend on values that no trial draws."""
    function = TestFunction(
        call=lambda x: {"y": tf.boolean_mask(x, tf.reduce_max(x, 0) < 1e6, axis=1)},
        inputs={"x": ([None, None], FLOAT)},
        settings="jit = false\n",
    )
    bench = CallBench({"above": function.save(tmp_path / "above")})
    x = np.zeros((9, 16), np.float32)
    x[8, 0] = 1e7
    with pytest.raises(CallFailedError, match="y has other sizes in other rows"):
        bench.submit("above", {"x": x}).wait()
    assert bench.submit("above", {"x": x[:8]}).wait().outputs["y"].shape == (8, 16)
    bench.stop_compiling()
    assert not bench.defects


def test_a_suspect_that_is_computed_in_parts_begins_once(bench: CallBench) -> None:
    call = bench.submit("dense", {"x": np.ones((20, 6), np.float32)}, suspect=True)
    call.wait()
    assert [type(event) for event in call.seen] == [Begun, WorkerResult]


def test_a_router_is_told_before_a_suspect_is_computed_alone(bench: CallBench) -> None:
    """It is in the header that routers read, even if the worker dies afterwards."""
    bench.wait_until_ready()
    sent: list[Any] = []

    class Context:
        def time_remaining(self) -> None:
            return None

        async def send_initial_metadata(self, metadata: Any) -> None:
            sent.append(metadata)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        repository = ModelRepository(bench.engine, None, dict.fromkeys(NAMES, Path()), lambda: None)
        servicer = WorkerServicer(bench.engine, repository, Changes(loop), Drain(), "worker")
        for suspect in (False, True):
            call = WorkerCall(
                request_id="test",
                client="test",
                model="dense",
                inputs={"x": np.ones((20, 6), np.float32)},
                outputs=["y"],
                suspect=suspect,
            )
            await servicer.Call(worker_call_to_message(call), Context())

    asyncio.run(scenario())
    ((entry,),) = sent
    assert entry[0] == ISOLATED_KEY


def test_padding_is_counted(bench: CallBench) -> None:
    before = bench.scheduler("maximum").report().padding_elements
    result = bench.submit("maximum", {"x": np.ones((1, 3, 6), np.float32)}).wait()
    (use,) = result.graphs
    padding = bench.scheduler("maximum").report().padding_elements - before
    assert padding == use.served.elements - 3


def test_a_missing_tight_cover_records_what_it_would_have_saved(
    bench: CallBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.wait_until_ready()
    # An estimate from a busy machine could be longer than the call below.
    monkeypatch.setattr(bench.graphs, "step_seconds", lambda _: 1e-9)
    tight = bench.graphs.graph(Signature.parse("image call 1x8x8"))

    def missed() -> bool:
        bench.submit("image", {"x": np.ones((1, 2, 2, 2), np.float32)}).wait()
        return tight.missed_seconds > 0

    # Calls that run while a graph is being traced are not recorded.
    wait_until(missed)


def test_a_cancelled_call_leaves_the_queue(bench: CallBench) -> None:
    inputs = {"x": np.ones((1, 6), np.float32)}
    scheduler = bench.scheduler("batch_norm")
    with bench.held("batch_norm"):
        first, second = bench.submit("batch_norm", inputs), bench.submit("batch_norm", inputs)
        bench.engine.cancel_call(first.call, "batch_norm")
        wait_until(lambda: scheduler.report().calls == 1)
    second.wait()
    assert not first.seen


def test_values_that_the_function_cannot_take_fail_their_call_only(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    """An uncompiled gather checks its ids."""
    function = FUNCTIONS["masked_mean"]
    path = TestFunction(
        call=function.call,
        inputs=function.inputs,
        variables=function.variables,
        settings="jit = false\n",
    ).save(tmp_path / "plain")
    bench = CallBench({"plain": path})
    good = {"ids": np.ones((1, 2), np.int32), "mask": np.ones((1, 2), np.int32)}
    with bench.held("plain"):
        calls = [
            bench.submit("plain", good),
            bench.submit("plain", good | {"ids": good["ids"] * 99}),
        ]
    assert disagreement(direct(bench, "plain", good), calls[0].wait().outputs) == ""
    with pytest.raises(InvalidRequestError, match="plain cannot compute these values"):
        calls[1].wait()
    bench.stop_compiling()
    assert not bench.defects


def test_a_lack_of_memory_refuses_all_calls_of_a_batch_for_now(
    bench: CallBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def fail(*_: Any) -> None:
        nonlocal calls
        calls += 1
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    bench.wait_until_ready()
    inputs = {"x": np.ones((1, 6), np.float32)}
    with monkeypatch.context() as starved:
        starved.setattr(CallProgram, "__call__", fail)
        with bench.held("dense"):
            waiting = [bench.submit("dense", inputs) for _ in range(2)]
        for each in waiting:
            with pytest.raises(ExhaustedError, match="no memory left"):
                each.wait()
    assert calls <= 2
    bench.submit("dense", inputs).wait()


def test_an_error_that_quotes_bytes_fails_its_call_only(tmp_path: Path) -> None:
    """TensorFlow cannot raise an error whose text is not UTF-8."""
    schema = {"x": tf.io.FixedLenFeature([2], FLOAT, [1.0, 2.0])}
    path = TestFunction(
        call=lambda examples: {"y": tf.io.parse_example(examples, schema)["x"]},
        inputs={"examples": ([None], tf.string)},
        settings="jit = false\n",
    ).save(tmp_path / "parsed")
    bench = CallBench({"parsed": path})
    wrong = bench.submit("parsed", {"examples": np.array([b"\xb1\xff"], object)})
    with pytest.raises(InvalidRequestError, match="Could not parse example input"):
        wrong.wait()
    bench.submit("parsed", {"examples": np.array([b""], object)}).wait()
    bench.stop_compiling()
    assert not bench.defects


def test_a_full_queue_refuses_and_a_draining_one_returns_its_calls(saved: dict[str, Path]) -> None:
    bench = CallBench({"dense": saved["dense"]}, queue_limit=2)
    inputs = {"x": np.ones((1, 6), np.float32)}
    with bench.held("dense"):
        waiting = bench.submit("dense", inputs)
        with pytest.raises(QueueFullError):
            bench.submit("dense", inputs)
        bench.engine.drain()
        with pytest.raises(StoppingError):
            waiting.wait()
    with pytest.raises(StoppingError):
        bench.submit("dense", inputs)
    bench.stop_compiling()


def test_a_thousand_calls_trace_each_signature_once_and_a_restart_compiles_nothing(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    models = [saved[name] for name in ("convolution", "dense", "masked_mean")]
    first = served_functions.run(tmp_path, models)
    assert set(first["traces"]) == set(first["compiles"]) == {1}
    assert len(first["traces"]) == first["signatures"]
    again = served_functions.run(tmp_path, models)
    assert set(again["loads"]) == {1}
    assert set(again["traces"]) == set(again["compiles"]) == {0}
    assert first["stall_seconds"] == again["stall_seconds"] == 0
