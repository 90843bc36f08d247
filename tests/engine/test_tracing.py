"""A separate process traces programs while requests run, with the same results and no lost work."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe

import psutil
import pytest

from harness.engine import GOLDENS, Bench
from harness.logs import configured_logs
from harness.service import process_exists
from harness.waiting import TIMEOUT, wait_until
from shaperouter_service.decoding import AlignProgram, DecodeProgram, EncodeProgram, PrefillProgram
from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.decoding.program import Program
from shaperouter_service.graphs import GraphState, LoweringProcess
from shaperouter_service.models import Model, load_model
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.system.process import NICE, run_at_low_priority
from shaperouter_service.telemetry.logs import LogSettings

LOWEST = 19  # Linux's lowest priority

PLANS: dict[str, Callable[[Model], Program]] = {
    "prefill": lambda model: PrefillProgram("p", model, rows=1, length=16, piece=16),
    "prefill_pieces": lambda model: PrefillProgram("pp", model, rows=2, length=48, piece=16),
    "score": lambda model: PrefillProgram("s", model, rows=2, length=48, piece=16, scores=True),
    "decode": lambda model: DecodeProgram("d", model, rows=2, beams=1, length=32),
    "decode_beams": lambda model: DecodeProgram("db", model, rows=1, beams=2, length=32),
}


ENCODER_PLANS: dict[str, Callable[[Model], Program]] = {
    "encode": lambda model: EncodeProgram("e", model, rows=2, length=32),
    "prefill": PLANS["prefill"],
    "score": PLANS["score"],
    "decode_beams": PLANS["decode_beams"],
}

HEARING_PLANS: dict[str, Callable[[Model], Program]] = {
    "encode": lambda model: EncodeProgram("e", model, rows=1, length=30),
    "prefill": PLANS["prefill"],
    "align": lambda model: AlignProgram(
        "a", model, rows=1, length=64, heads=[(0, 1), (2, 3)], text_tokens=90
    ),
}

# Models, each with the plans of its programs.
PLANS_OF = {
    "gpt2-odd-heads": PLANS,
    "opt-post": PLANS,
    "t5-gated": ENCODER_PLANS,
    "whisper-uneven": HEARING_PLANS,
}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    """Programs with and without the native kernels."""
    return {
        "t5-gated": load_model("t5-gated", GOLDENS / "t5-gated", "int8", packed=True),
        "gpt2-odd-heads": load_model(
            "gpt2-odd-heads", GOLDENS / "gpt2-odd-heads", "float32", packed=True
        ),
        "opt-post": load_model("opt-post", GOLDENS / "opt-post", "bfloat16"),
        "whisper-uneven": load_model("whisper-uneven", GOLDENS / "whisper-uneven", "float32"),
    }


@pytest.fixture(scope="module")
def tracing(models: dict[str, Model]) -> Iterator[LoweringProcess]:
    tracing = LoweringProcess(models.values())
    yield tracing
    tracing.end()


@pytest.fixture
def program(models: dict[str, Model]) -> Program:
    return PLANS["prefill"](models["gpt2-odd-heads"])


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param(name, plan, id=f"{name}-{kind}")
        for name, plans in PLANS_OF.items()
        for kind, plan in plans.items()
    ],
)
def test_the_module_is_the_same_in_both_processes(
    name: str,
    plan: Callable[[Model], Program],
    models: dict[str, Model],
    tracing: LoweringProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = plan(models[name]).lower()
    program = plan(models[name])
    monkeypatch.delattr(Program, "lower")
    assert tracing.lower(program) == here
    assert program.traces == 1


def test_the_process_runs_only_while_it_is_needed(
    models: dict[str, Model], program: Program
) -> None:
    others = _children()
    tracing = LoweringProcess(models.values(), idle=0.1)
    assert _children() == others
    tracing.lower(program)
    assert program.traces == 1
    wait_until(lambda: _children() == others)


def test_the_process_has_the_priority_of_the_thread_that_starts_it(
    models: dict[str, Model], program: Program
) -> None:
    others = set(_children())
    tracing = LoweringProcess(models.values())
    run_at_low_priority(lambda: tracing.lower(program))
    (child,) = set(_children()) - others
    assert psutil.Process(child).nice() == min(psutil.Process().nice() + NICE, LOWEST)
    tracing.end()


def test_a_program_that_kills_the_process_is_traced_in_the_worker(
    models: dict[str, Model],
    program: Program,
    tracing: LoweringProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (child,) = _stopped(tracing, program)
    found: list[Lowered] = []
    other = PLANS["decode"](models["opt-post"])
    thread = threading.Thread(target=lambda: found.append(tracing.lower(other)))
    thread.start()
    os.kill(child, signal.SIGKILL)
    thread.join(TIMEOUT)
    assert (found, other.traces) == ([PLANS["decode"](models["opt-post"]).lower()], 1)
    monkeypatch.delattr(Program, "lower")
    tracing.lower(PLANS["prefill"](models["opt-post"]))
    assert _children() not in ([], [child])


def test_a_process_that_hangs_is_ended_and_the_program_traced_in_the_worker(
    program: Program, tracing: LoweringProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tracing, program)
    monkeypatch.setattr(tracing, "_timeout", 0.1)
    tracing.lower(program)
    assert not _children()


def test_a_program_that_cannot_be_traced_fails_with_its_error(
    models: dict[str, Model], program: Program, tracing: LoweringProcess
) -> None:
    tracing.lower(program)
    children = _children()
    broken = PrefillProgram("broken", models["opt-post"], rows=-1, length=16, piece=16)
    with pytest.raises(Exception, match="-1"):
        tracing.lower(broken)
    assert _children() == children


def test_output_of_the_process_goes_to_the_workers_log(
    models: dict[str, Model],
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # It cannot import this module, and ends by that.
    monkeypatch.setattr(PrefillProgram, "plan", staticmethod(_plan_that_only_tests_know))
    with configured_logs(LogSettings(format="json", fields={"worker": "w"})):
        tracing = LoweringProcess(models.values())
        tracing.lower(program)
        tracing.end()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    (ended,) = [line for line in lines if line["event"] == "ended by an exception"]
    assert "ModuleNotFoundError" in ended["exception"]
    assert {line["worker"] for line in lines} == {"w"}


def _plan_that_only_tests_know(_: Model) -> Program:
    raise NotImplementedError


PARENT = """
import pathlib, sys, time
from shaperouter_service.decoding import PrefillProgram
from shaperouter_service.graphs import LoweringProcess
from shaperouter_service.models import load_model
model = load_model("tiny", pathlib.Path(sys.argv[1]), "float32")
tracing = LoweringProcess([model])
tracing.lower(PrefillProgram("p", model, rows=1, length=16, piece=16))
print("traced", tracing._child.process.pid, flush=True)
time.sleep(600)
"""


def test_the_process_ends_silently_with_a_killed_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(GOLDENS / "gpt2-odd-heads")],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    child = next(int(line.split()[1]) for line in parent.stdout if line.startswith("traced"))
    parent.kill()
    wait_until(lambda: not process_exists(child))
    assert parent.communicate()[1] == ""


def test_the_process_ends_silently_if_its_parent_died_at_its_start() -> None:
    ours, theirs = Pipe()
    with theirs:
        ours.close()
        # Its standard input is still open: it learns of the end by the connection alone.
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "shaperouter_service.graphs.lowering_child",
                str(theirs.fileno()),
                "{}",
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            pass_fds=[theirs.fileno()],
            text=True,
        )
    assert process.stdin
    assert process.stderr
    with process, process.stdin, process.stderr:
        assert process.wait(TIMEOUT) == 0
        assert "Traceback" not in process.stderr.read()


def test_a_worker_uses_the_process_only_while_requests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench({"m": GOLDENS / "gpt2-odd-heads"}, slots=2, trace_apart=True)
    tracing, table = bench.parts.programs.tracing, bench.parts.graphs
    assert tracing is not None
    bench.submit("m", [1, 2], max_new_tokens=3, num_beams=2).wait()
    assert not tracing.running
    monkeypatch.setattr(bench.parts.programs, "is_serving", lambda: True)
    signature = Signature(model="m", kind=GraphKind.DECODE, beams=1, rows=2, length=64)
    graph = table.request_compile(signature, urgent=True)
    wait_until(lambda: graph.state is GraphState.READY)
    assert (tracing.running, graph.traces, graph.failures) == (True, 1, 0)
    tracing.end()


def _children() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


def _stopped(tracing: LoweringProcess, program: Program) -> list[int]:
    """Stops the process before its next program."""
    tracing.lower(program)
    children = _children()
    for child in children:
        os.kill(child, signal.SIGSTOP)
    return children
