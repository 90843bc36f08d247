"""The ``shaperouter`` command as a process of its own: signals, pipes and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shaperouter.v1 import signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

PATIENCE = 60.0
COMMAND = Path(sys.executable).with_name("shaperouter")


@pytest.fixture(autouse=True)
def _interruptible() -> None:
    """Shells have what they run in the background ignore interruptions, as would its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A process whose stdin, stdout and stderr are one terminal of 80 columns."""

    def __init__(self, *arguments: str) -> None:
        """Starts the process."""
        self._end, slave = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.output = ""

    def read_until(self, text: str) -> None:
        """Reads on until the text has come."""
        while text not in self.output:
            assert self._read(), f"ended before {text!r}: {self.output!r}"

    def read_to_end(self) -> str:
        """Reads all that is left, and waits for the process."""
        while self._read():
            pass
        self.process.wait(PATIENCE)
        return self.output

    def close(self) -> None:
        """Ends the process if it still runs."""
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._end)

    def _read(self) -> bool:
        try:
            data = os.read(self._end, 65536)
        except OSError:  # the other end is closed
            return False
        self.output += data.decode()
        return bool(data)


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    opened = Terminal(*arguments)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def piped(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_json_and_stdin_work_in_a_pipe(fake: FakeShaperouter) -> None:
    result = subprocess.run(
        [COMMAND, "generate", "-", "--address", fake.address, "--json"],
        input=b"TensorFlow is\n",
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert json.loads(result.stdout)["text"] == " a library"
    assert result.stderr == b""


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_interruption_cancels_the_call_and_exits_with_130(
    fake: FakeShaperouter, stream: list[str]
) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, *stream) as process:
        assert fake.entered.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert errors == b""
    assert fake.cancelled.wait(PATIENCE)


def test_streamed_text_is_written_as_it_comes(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, "--stream") as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b" a"
        fake.released.set()
        assert process.stdout.read() == b" library\n"


def test_reader_that_goes_away_is_no_traceback(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)
    with piped("generate", "x", "--address", fake.address, "--stream") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert os.read(process.stdout.fileno(), 100) == b" a"
        process.stdout.close()
        fake.released.set()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) != 0


def test_table_whose_reader_has_gone_is_no_traceback(fake: FakeShaperouter) -> None:
    with piped("models", "--address", fake.address) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_terminal_shows_what_is_waited_for_then_text_and_summary(fake: FakeShaperouter) -> None:
    fake.script.insert(1, fake.hold)
    with terminal("generate", "TensorFlow is", "--address", fake.address) as shown:
        shown.read_until("compiling prefill 1x16 … 0 s; the first request of a shape waits")
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


def test_stall_amid_streamed_text_is_shown_below_it(fake: FakeShaperouter) -> None:
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


def test_interruption_on_a_terminal_leaves_no_line_behind(fake: FakeShaperouter) -> None:
    fake.script.insert(1, fake.hold)
    with terminal("generate", "x", "--address", fake.address) as shown:
        shown.read_until("compiling")
        shown.process.send_signal(signal.SIGINT)
        output = shown.read_to_end()
        assert shown.process.returncode == 130
    assert "Traceback" not in output
    assert "compiling" not in output.rpartition("\x1b[2K")[2]
    assert output.rpartition("\x1b[?25")[2].startswith("h")  # the cursor is shown again
    assert fake.cancelled.wait(PATIENCE)
