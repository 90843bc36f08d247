"""The ``shaperouter`` command in its own process: signals, pipes and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest

from harness.client_command import request_of
from harness.waiting import TIMEOUT
from shaperouter.v1 import graph_pb2, inference_pb2, model_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

COMMAND = (str(Path(sys.executable).with_name("shaperouter")),)
# Two seconds after an interruption, the command exits even if it is not done. On a busy machine it
# may need longer, so this one has more time.
UNHURRIED = (
    sys.executable,
    "-c",
    f"""
import shaperouter_command
from shaperouter._cli import _interruption
_interruption._GRACE_SECONDS = {TIMEOUT}
shaperouter_command.main()
""",
)
FP32 = inference_pb2.DATA_TYPE_FP32


@pytest.fixture(autouse=True)
def _interruptible() -> None:
    """Restores SIGINT, which shells let background processes and their children ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A process whose stdin, stdout and stderr are one terminal of 24 lines."""

    def __init__(self, *words: str, columns: int) -> None:
        """Starts the process."""
        self._end, slave = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "24"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.output = ""

    def read_until(self, pattern: str) -> None:
        """Reads until what matches the regular expression has appeared."""
        while not re.search(pattern, self.output):
            assert self._read(), f"ended before {pattern!r}: {self.output!r}"

    def read_to_end(self) -> str:
        """Reads the rest and waits for the process."""
        while self._read():
            pass
        self.process.wait(TIMEOUT)
        return self.output

    def close(self) -> None:
        """Ends the process if it is still running."""
        self.process.kill()
        self.process.wait(TIMEOUT)
        os.close(self._end)

    def _read(self) -> bool:
        try:
            data = os.read(self._end, 65536)
        except OSError:  # the other end is closed
            return False
        self.output += data.decode()
        return bool(data)


@contextlib.contextmanager
def terminal(
    *arguments: str, columns: int = 80, command: Sequence[str] = COMMAND
) -> Iterator[Terminal]:
    opened = Terminal(*command, *arguments, columns=columns)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def piped(*arguments: str, command: Sequence[str] = COMMAND) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_json_and_stdin_work_in_a_pipe(fake: FakeShaperouter) -> None:
    result = subprocess.run(
        [*COMMAND, "generate", "-", "--address", fake.address, "--json"],
        input=b"TensorFlow is\n",
        capture_output=True,
        check=True,
        timeout=TIMEOUT,
    )
    assert json.loads(result.stdout)["text"] == " a library"
    assert result.stderr == b""


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_interruption_cancels_the_call_and_exits_with_130(
    fake: FakeShaperouter, stream: list[str]
) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, *stream) as process:
        assert fake.entered.wait(TIMEOUT)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, errors) == (130, b"")
    assert fake.cancelled.wait(TIMEOUT)


@pytest.mark.parametrize("module", ["google.protobuf", "grpc", "shaperouter._cli._main"])
def test_interruption_during_import_prints_no_traceback(unused_address: str, module: str) -> None:
    # Python then says on stderr what it has imported.
    environment = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    with subprocess.Popen(
        [*COMMAND, "models", "--address", unused_address],
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stderr is not None
        # A module's imports are printed before the module itself.
        for line in process.stderr:
            if line.rpartition("|")[2].strip().startswith(module):
                break
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
        assert process.wait(TIMEOUT) == 130


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_further_interruptions_print_no_traceback(fake: FakeShaperouter, stream: list[str]) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, *stream) as process:
        assert fake.entered.wait(TIMEOUT)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, errors) == (130, b"")
    assert fake.cancelled.wait(TIMEOUT)


def test_further_interruptions_leave_the_terminal_intact(fake: FakeShaperouter) -> None:
    fake.script.insert(1, fake.hold)
    with terminal("generate", "x", "--address", fake.address, command=UNHURRIED) as shown:
        shown.read_until("compiling")
        for _ in range(5):
            shown.process.send_signal(signal.SIGINT)
        output = shown.read_to_end()
        assert shown.process.returncode == 130
    assert "Traceback" not in output
    assert output.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is shown again


def test_streamed_text_is_written_as_it_arrives(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, "--stream") as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b" a"
        fake.released.set()
        assert process.stdout.read() == b" library\n"


def test_closed_pipe_prints_no_traceback(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, "--stream") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert os.read(process.stdout.fileno(), 100) == b" a"
        process.stdout.close()
        fake.released.set()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT) != 0


def test_table_to_a_closed_pipe_prints_no_traceback(fake: FakeShaperouter) -> None:
    with piped("models", "--address", fake.address) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_terminal_shows_the_waiting_line_then_text_and_summary(fake: FakeShaperouter) -> None:
    fake.script.insert(1, fake.hold)
    with terminal("generate", "TensorFlow is", "--address", fake.address) as shown:
        shown.read_until(r"compiling prefill 1x16 … \d+ s; later requests won't wait")
        fake.released.set()
        output = shown.read_to_end()
        assert shown.process.returncode == 0
    assert "waiting for" in output
    _, _, text = output.rpartition("\x1b[2K")  # what came after the line was taken away
    assert "\x1b[2mTensorFlow is\x1b[0m a library\r\n" in text
    assert (
        "3 tokens · 4.0 tokens/s · first token after 3.00 s · stalled 2.50 s · "
        "seed 4611686018427387905 · decode 4x256 (for decode 1x64)"
    ) in text


@pytest.mark.parametrize("command", ["infer", "embed"])
def test_a_call_shows_that_it_waits_and_then_only_its_outputs(
    fake: FakeShaperouter, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.zeros(1, np.float32))
    content = np.array([[1.0, 2.0]], np.float32).tobytes()
    spec = model_pb2.TensorSpec(name="x", dtype=FP32, shape=[-1])
    fake.models = [model_pb2.Model(name="a", call=model_pb2.CallSpec(inputs=[spec]))]
    fake.inference = inference_pb2.InferResponse(
        outputs=[inference_pb2.Tensor(name="embedding", dtype=FP32, shape=[1, 2], content=content)]
    )
    fake.before_inference = fake.hold
    with terminal(command, str(file), "--model", "a", "--address", fake.address) as shown:
        shown.read_until(r"waiting for \S+ … \d+ s")
        fake.released.set()
        output = shown.read_to_end()
        assert shown.process.returncode == 0
    _, _, left = output.rpartition("\x1b[2K")  # what came after the line was taken away
    printed = json.loads(plain(left))
    assert printed["embedding"] == ([[1.0, 2.0]] if command == "infer" else [1.0, 2.0])


def test_the_longest_shape_and_its_remark_fit_in_80_columns(fake: FakeShaperouter) -> None:
    signature = fake.signature(signature_pb2.GRAPH_KIND_DECODE, 128, 131_072, beams=8)
    fake.script[0] = type(fake.script[0])(stall={"signature": signature})
    fake.script.insert(1, fake.hold)
    with terminal("generate", "x", "--address", fake.address) as shown:
        shown.read_until(r"compiling decode 128x131072 beams 8 … \d+ s; later requests won't wait")
        fake.released.set()
        shown.read_to_end()


def test_truncated_waiting_line_keeps_its_seconds(fake: FakeShaperouter) -> None:
    fake.script.insert(1, fake.hold)
    with terminal("generate", "x", "--address", fake.address, columns=24) as shown:
        shown.read_until(r"compiling pref… … \d+ s")
        fake.released.set()
        assert "later" not in plain(shown.read_to_end())


@pytest.mark.parametrize("stream", [[], ["--stream"]])
@pytest.mark.parametrize(
    ("decoder_text", "shown_text"),
    [([], " a library\r\n"), (["--decoder-text", "Das"], "\x1b[2mDas\x1b[0m a library\r\n")],
)
def test_decoder_prompt_is_shown_before_the_text_and_the_source_is_not(
    fake: FakeShaperouter, stream: list[str], decoder_text: list[str], shown_text: str
) -> None:
    fake.models[0].kind = model_pb2.MODEL_KIND_ENCODER_DECODER
    arguments = ["generate", "a source", "--address", fake.address, *stream, *decoder_text]
    with terminal(*arguments) as shown:
        output = shown.read_to_end()
    assert shown_text in output
    assert "a source" not in output


def test_the_source_is_not_shown_if_only_one_of_several_models_generates_text(
    fake: FakeShaperouter,
) -> None:
    fake.models = [
        model_pb2.Model(name="classifier", kind=model_pb2.MODEL_KIND_FUNCTION),
        model_pb2.Model(name="translator", kind=model_pb2.MODEL_KIND_ENCODER_DECODER),
    ]
    with terminal("generate", "a source", "--address", fake.address) as shown:
        output = shown.read_to_end()
    assert " a library\r\n" in output
    assert "a source" not in output


def test_stall_during_streamed_text_is_shown_below_it(fake: FakeShaperouter) -> None:
    fake.script[2:2] = [fake.stall(signature_pb2.GRAPH_KIND_DECODE, 1, 64), fake.hold]
    with terminal("generate", "x", "--address", fake.address, "--stream") as shown:
        shown.read_until("compiling decode 1x64")
        fake.released.set()
        output = shown.read_to_end()
    before, _, after = output.partition("compiling decode 1x64")
    assert "\x1b7" in before.partition(" a")[2]  # the place in the text is kept …
    assert "\x1b8 library\r\n" in after  # … and the text goes on there


def test_control_characters_of_a_model_do_not_reach_the_terminal(fake: FakeShaperouter) -> None:
    fake.script[0:2] = [fake.delta("\x1b]0;owned\x07\x9b1m\n", 1)]
    with terminal("generate", "x", "--address", fake.address, "--stream") as shown:
        output = shown.read_to_end()
    assert "␛]0;owned␇\ufffd1m\r\n library\r\n" in output


def test_interruption_removes_the_waiting_line(fake: FakeShaperouter) -> None:
    fake.script.insert(1, fake.hold)
    with terminal("generate", "x", "--address", fake.address, command=UNHURRIED) as shown:
        shown.read_until("compiling")
        shown.process.send_signal(signal.SIGINT)
        output = shown.read_to_end()
        assert shown.process.returncode == 130
    assert "Traceback" not in output
    assert "compiling" not in output.rpartition("\x1b[2K")[2]
    assert output.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is shown again
    assert fake.cancelled.wait(TIMEOUT)


# Graphs.


def plain(output: str) -> str:
    """Output to a terminal, without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output).replace("\r", "")


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize("command", ["models", "graphs"])
def test_tables_do_not_break_words_on_a_narrow_terminal(
    fake: FakeShaperouter, command: str, columns: int
) -> None:
    with terminal(command, "--address", fake.address, columns=columns) as shown:
        lines = plain(shown.read_to_end()).splitlines()
        assert shown.process.returncode == 0
    assert max(map(len, lines)) <= columns
    words = {word for line in lines for word in line.split()}
    tables = {
        "graphs": "demo decode 4x256 worker-0 ready traces compiles compile 10.00 device 0.40",
        "models": "demo gpt2 float32 parameters 6.29 M 256 slots 25.2 weights workers",
    }
    assert words >= set(tables[command].split())


def test_watch_fills_the_screen_and_interruption_ends_it_with_success(
    fake: FakeShaperouter,
) -> None:
    fake.graph_updates.append(fake.hold)
    with terminal("graphs", "--watch", "--address", fake.address, command=UNHURRIED) as shown:
        shown.read_until("1 of 1 ready")
        shown.process.send_signal(signal.SIGINT)
        output = shown.read_to_end()
        assert shown.process.returncode == 0
    assert "0 of 1 ready" in plain(output)
    assert output.index("\x1b[?1049h") < output.index("demo decode")  # the other screen
    assert output.index("demo decode") < output.index("\x1b[?1049l")  # and back
    assert plain(output.partition("\x1b[?1049l")[2]).strip() == ""
    assert output.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is shown again
    assert fake.cancelled.wait(TIMEOUT)


def test_watch_leaves_the_screen_and_reports_a_lost_service(fake: FakeShaperouter) -> None:
    fake.graph_updates.append(fake.fail(grpc.StatusCode.UNAVAILABLE, "Socket closed"))
    with terminal("graphs", "--watch", "--address", fake.address) as shown:
        output = shown.read_to_end()
        assert shown.process.returncode == 1
    assert plain(output.partition("\x1b[?1049l")[2]).startswith("Error: Socket closed")


def test_interruption_ends_a_watch_in_a_pipe(fake: FakeShaperouter) -> None:
    fake.graph_updates.append(fake.hold)
    watch = ("graphs", "--watch", "--json", "--address", fake.address)
    with piped(*watch, command=UNHURRIED) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["graphs"][0]["state"] == "tracing"
        second = json.loads(process.stdout.readline())
        assert second["graphs"][0]["state"] == "ready"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, rest, errors) == (0, b"", b"")


def test_warm_shows_a_bar_and_the_state_of_each_graph(fake: FakeShaperouter) -> None:
    fake.graph_updates.insert(1, fake.hold)
    with terminal("warm", "demo decode 4x256", "--address", fake.address) as shown:
        shown.read_until("tracing")
        fake.released.set()
        output = plain(shown.read_to_end())
        assert shown.process.returncode == 0
    assert "0 of 1 graphs ready" in output
    *_, table, summary = output.splitlines()
    assert table.split()[:5] == ["demo", "decode", "4x256", "worker-0", "ready"]
    assert re.fullmatch(r"1 of 1 graphs ready after \d+\.\d s", summary)


def test_warm_shows_graphs_in_progress_first_if_not_all_fit(fake: FakeShaperouter) -> None:
    ready, compiling = graph_pb2.GRAPH_STATE_READY, graph_pb2.GRAPH_STATE_COMPILING
    lengths = range(1, 101)
    fake.graph_updates = [
        [fake.graph(compiling if length == 100 else ready, length=length) for length in lengths],
        fake.hold,
        [fake.graph(ready, length=length) for length in lengths],
    ]
    with terminal("warm", "demo decode 4x256", "--address", fake.address) as shown:
        shown.read_until("more")
        fake.released.set()
        assert "4x100" in shown.output
        shown.read_to_end()
        assert shown.process.returncode == 0


def test_refused_warm_shows_only_the_reason(fake: FakeShaperouter) -> None:
    fake.graph_updates = [fake.hold, fake.fail(grpc.StatusCode.INVALID_ARGUMENT, "no such rung")]
    with terminal("warm", "demo decode 3x256", "--address", fake.address) as shown:
        shown.read_until("waiting for")
        fake.released.set()
        output = shown.read_to_end()
        assert shown.process.returncode == 2
    _, _, left = output.rpartition("\x1b[2K")  # what came after the line was taken away
    assert plain(left) == "Error: no such rung (request req-7)\n"


def test_interrupted_warm_exits_with_130(fake: FakeShaperouter) -> None:
    fake.graph_updates.insert(1, fake.hold)
    warm = ("warm", "demo decode 4x256", "--address", fake.address)
    with terminal(*warm, command=UNHURRIED) as shown:
        shown.read_until("tracing")
        shown.process.send_signal(signal.SIGINT)
        output = shown.read_to_end()
        assert shown.process.returncode == 130
    assert "Traceback" not in output
    assert output.rpartition("\x1b[?25")[2].startswith("h")
    assert fake.cancelled.wait(TIMEOUT)


@pytest.mark.parametrize(
    ("redirection", "printed"),
    [("<&-", " a library\n"), (">&-", ""), ("2>&-", " a library\n"), ("<&- >&- 2>&-", "")],
)
def test_a_closed_standard_stream_is_no_error(
    fake: FakeShaperouter, redirection: str, printed: str
) -> None:
    result = in_shell(redirection, "generate", "x", "--address", fake.address)
    assert (result.returncode, result.stdout, result.stderr) == (0, printed, "")


def test_closed_stdin_is_an_empty_prompt(fake: FakeShaperouter) -> None:
    result = in_shell("<&-", "generate", "-", "--address", fake.address)
    assert result.returncode == 0, result.stderr
    assert request_of(fake).text == ""


@pytest.mark.parametrize("command", ["models", "generate x", "generate x --stream"])
def test_a_full_disk_is_one_line_and_exit_code_1(fake: FakeShaperouter, command: str) -> None:
    result = in_shell(">/dev/full", *command.split(), "--address", fake.address)
    told = "Error: cannot read or write a standard stream: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, told)


def in_shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with a shell's redirection."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=TIMEOUT,
    )
