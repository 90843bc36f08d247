"""Graphs measure themselves by a device's own clock; here the host's is in its place."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from harness.call_engine import CallBench
from harness.clocks import graphs_read_a_clock
from harness.engine import Bench, Golden, assert_equals, few_rungs
from harness.functions import FUNCTIONS
from harness.logs import capture_logs
from shaperouter_service import kernels
from shaperouter_service.graphs import Graph
from shaperouter_service.kernels import KernelsUnavailableError, clock
from shaperouter_service.kernels.library import LIBRARY

NATIVE = Path(__file__).parents[1] / "native"

pytestmark = pytest.mark.usefixtures("native_kernels")


def called(graphs: list[Graph]) -> list[Graph]:
    """The graphs that have served requests."""
    return [graph for graph in graphs if sum(graph.device_seconds.report().counts)]


# Two families without an encoder and with one, whose graph has no results but caches.
@pytest.mark.parametrize(
    ("name", "kernels_choice"), [("gpt2-odd-heads", "off"), ("t5-gated", "auto")]
)
def test_measured_graphs_give_the_same_tokens(name: str, kernels_choice: str) -> None:
    golden = Golden.read(name)
    with graphs_read_a_clock():
        bench = Bench({name: golden.directory}, slots=1, ladders=few_rungs, kernels=kernels_choice)
        runs = [bench.submit_case(golden, case) for case in golden.cases[:3]]
        for run, case in zip(runs, golden.cases, strict=False):
            assert_equals(run, case)
        # Nothing is loaded after the clock is gone.
        bench.stop_compiling()
    graphs = called(bench.parts.graphs.graphs())
    assert {graph.signature.kind.value for graph in graphs} >= {"decode"}
    for graph in graphs:
        assert graph.overhead_seconds is not None
        assert graph.overhead_seconds > 0
        assert graph.device_seconds.report().sum > 0


def test_a_measured_call_of_a_function_gives_the_same_answer(tmp_path: Path) -> None:
    FUNCTIONS["dense"].save(tmp_path / "dense")
    inputs = {"x": np.ones([2, 6], np.float32)}
    answers = []
    for measured in (False, True):
        with graphs_read_a_clock() if measured else capture_logs():
            bench = CallBench({"dense": tmp_path / "dense"})
            bench.wait_until_ready()
            answers.append(bench.submit("dense", inputs).wait())
            bench.stop_compiling()
        (graph,) = called(bench.graphs.graphs())
        assert (graph.overhead_seconds is not None) == measured
    for output, expected in answers[0].outputs.items():
        np.testing.assert_array_equal(answers[1].outputs[output], expected)


def test_the_time_of_a_graph_is_part_of_the_time_of_its_call() -> None:
    clock.check_clock("CPU")


def test_on_a_cpu_graphs_are_not_measured_twice() -> None:
    assert kernels.clock_platform() is None


def test_a_gpu_whose_clock_cannot_be_read_is_measured_by_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    with capture_logs() as logs:
        # There is none, so XLA refuses the graph.
        assert clock._found_platform.__wrapped__() is None
    (entry,) = logs
    assert entry["event"] == "the GPU's clock cannot be read"
    assert "CUDA" in entry["reason"]


def test_a_clock_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        clock, "nanoseconds_since", lambda began, results, platform: tf.constant(10**15, tf.int64)
    )
    with pytest.raises(KernelsUnavailableError, match="measured 1000000000000000 ns"):
        clock.check_clock("CPU")


def test_the_clock_of_a_gpu_is_read_by_its_driver(tmp_path: Path) -> None:
    """With a stand-in for the driver, which the library opens by its name."""
    native = LIBRARY.parent / "native"
    build = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{native}"]
    driver, test = tmp_path / "libcuda.so.1", tmp_path / "clock_test"
    stand_in = [NATIVE / "cuda_stand_in.cc", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*build, *stand_in, "-o", driver], check=True)
    sources = [NATIVE / "clock_test.cc", native / "clock.cc"]
    subprocess.run([*build, *sources, driver, "-ldl", "-pthread", "-o", test], check=True)
    subprocess.run([test], check=True, env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)})
