"""Ctrl-C ends `shaperouterd` with one line at any time, and a second one at once.

SIGTERM ends it with code 0, also if it comes twice.
"""

import signal
import subprocess
import sys

import pytest

from shaperouter_service.system.process import EXIT_INTERRUPTED, EXIT_TERMINATED

# A signal comes when a module is about to be imported.
WHILE_STARTING = """
import importlib.abc, os, signal, sys

class Signalling(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), number)
        return None

number, module = int(sys.argv.pop(1)), sys.argv.pop(1)
sys.meta_path.insert(0, Signalling())
from shaperouter_service.cli import main
main()
"""

# A process that is asked to stop takes its time, and does not let its loop run.
STOPPING = """
import asyncio, sys
from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.telemetry.logs import LogSettings, configure_logs

configure_logs(LogSettings(format="json"))

async def serve():
    stop = stop_signal()
    print("serving", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    sys.stdin.readline()

asyncio.run(serve())
print("stopped", flush=True)
sys.stdin.readline()
"""

# The interpreter deletes what modules hold after it has removed the handlers of signals.
EXITING = """
import os

class Last:
    def __del__(self, write=os.write, read=os.read):
        write(1, b"exiting\\n")
        read(0, 1)

last = Last()
"""


@pytest.mark.parametrize(
    "module",
    ["click", "shaperouter_service.commands.group", "shaperouter_service.roles.router", "grpc"],
)
@pytest.mark.parametrize(
    ("number", "told", "code"),
    [
        (signal.SIGINT, "interrupted", EXIT_INTERRUPTED),
        (signal.SIGTERM, "terminated", EXIT_TERMINATED),
    ],
)
def test_a_signal_during_the_start_prints_one_line(
    module: str, number: signal.Signals, told: str, code: int
) -> None:
    arguments = [str(int(number)), module, "router", "--worker=unix:/nowhere"]
    process = subprocess.run(
        [sys.executable, "-c", WHILE_STARTING, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stderr == f"shaperouterd: {told}\n"
    assert process.returncode == code


def stopping(code: str = STOPPING) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_second_ctrl_c_ends_a_stopping_process_at_once() -> None:
    with stopping() as process:
        assert line(process) == "serving"
        process.send_signal(signal.SIGINT)
        assert line(process) == "stopping"
        process.send_signal(signal.SIGINT)
        assert process.wait() == EXIT_INTERRUPTED
        assert process.stderr
        log = process.stderr.read()
    assert "interrupted twice" in log
    assert log.count("\n") == 1


@pytest.mark.parametrize(
    ("first", "code"), [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, 0)]
)
def test_ctrl_c_after_the_end_of_the_loop_prints_no_traceback(
    first: signal.Signals, code: int
) -> None:
    with stopping() as process:
        assert line(process) == "serving"
        process.send_signal(first)
        assert line(process) == "stopping"
        assert process.stdin
        assert process.stderr
        process.stdin.write("\n")
        process.stdin.flush()
        assert line(process) == "stopped"
        process.send_signal(signal.SIGINT)
        if first is signal.SIGTERM:
            # SIGINT changes nothing after SIGTERM, so the process waits for the end of its input.
            process.stdin.close()
        assert process.wait() == code
        assert "Traceback" not in process.stderr.read()


def test_a_second_sigterm_does_not_change_the_exit_code() -> None:
    with stopping(STOPPING + EXITING) as process:
        assert process.stdin
        for state in ("serving", "stopping", "stopped", "exiting"):
            assert line(process) == state
            process.send_signal(signal.SIGTERM)
            if state in ("stopping", "stopped"):
                process.stdin.write("\n")
                process.stdin.flush()
        process.stdin.close()
        assert process.wait() == 0
