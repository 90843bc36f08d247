"""Logs: every line of a process has the same form."""

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

# Calls of libraries, each of which would otherwise write its own line to standard error.
LIBRARIES = """
import asyncio, gc, logging, sys, threading, warnings
from shaperouter_service.telemetry.logs import LogSettings, adopt_loggers, configure_logs

early = logging.getLogger("early")
early.addHandler(logging.StreamHandler())
early.propagate = False
configure_logs(LogSettings(level=sys.argv[1], format=sys.argv[2], fields={"worker": "w"}))
late = logging.getLogger("late")
late.addHandler(logging.StreamHandler())
adopt_loggers()
alone = logging.getLogger("alone")
alone.propagate = False

early.warning("of %s", "early")
late.error("of late")
alone.error("of alone")
logging.getLogger("opentelemetry.exporter").error("of the exporter")
logging.getLogger("chatty").info("of nobody's concern")
warnings.warn("of a warning")
loop = asyncio.new_event_loop()
loop.call_exception_handler({"message": "of the loop"})
loop.close()

def fail():
    raise ValueError("in a thread")

thread = threading.Thread(target=fail, name="a thread")
thread.start()
thread.join()

class Unfinished:
    def __del__(self):
        raise ValueError("when deleted")

Unfinished()
raise ValueError("at the end")
"""

CONSOLE = """
import structlog
from shaperouter_service.telemetry.logs import LogSettings, configure_logs

configure_logs(LogSettings(format="console"))

def fail():
    prompt = "a caller's prompt".upper()
    raise ValueError("no")

try:
    fail()
except ValueError:
    structlog.get_logger().exception("something happened", of="it")
"""


def logged(level: str = "info") -> list[dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, "-c", LIBRARIES, level, "json"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    return [json.loads(line) for line in process.stderr.splitlines()]


def test_every_line_of_a_process_is_json() -> None:
    lines = logged()
    said = [(line["level"], line["event"], line.get("logger")) for line in lines]
    assert said[:4] == [
        ("warning", "of early", "early"),
        ("error", "of late", "late"),
        ("error", "of alone", "alone"),
        ("error", "of the exporter", "opentelemetry.exporter"),
    ]
    assert [
        event.rpartition("UserWarning: ")[2].partition("\n")[0] for _, event, _ in said[4:]
    ] == [
        "of a warning",
        "of the loop",
        "a thread was ended by an exception",
        "an exception was ignored",
        "ended by an exception",
    ]
    assert {line["worker"] for line in lines} == {"w"}
    assert "ValueError: in a thread" in lines[6]["exception"]
    assert lines[6]["thread"] == "a thread"
    assert "ValueError: at the end" in lines[8]["exception"]


def test_the_level_applies_to_libraries() -> None:
    assert {line["level"] for line in logged("error")} == {"error", "critical"}


def on_terminal(**variables: str) -> bytes:
    """What is written for people to a terminal."""
    ours, terminal = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reader:
        process = subprocess.Popen(
            [sys.executable, "-c", CONSOLE], stderr=terminal, env=os.environ | variables
        )
        os.close(terminal)
        text = b""
        try:
            while part := reader.read(65536):
                text += part
        except OSError:  # The other end is closed.
            pass
        assert process.wait() == 0
    assert b"something happened" in text
    return text


def test_a_terminal_gets_colours() -> None:
    plain = dict.fromkeys(("NO_COLOR", "FORCE_COLOR"), "")
    assert b"\x1b[" in on_terminal(**plain)
    assert b"\x1b[" not in on_terminal(**plain | {"NO_COLOR": "1"})


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}], ids=str)
def test_a_traceback_on_a_terminal_has_no_values_of_variables(variables: dict[str, str]) -> None:
    text = on_terminal(**variables)
    assert b"in fail" in text
    assert b"ValueError: no" in text
    assert b"A CALLER'S PROMPT" not in text


@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1"}], ids=str)
def test_a_log_in_a_file_has_no_colours(variables: dict[str, str]) -> None:
    process = subprocess.run(
        [sys.executable, "-c", CONSOLE],
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | variables,
    )
    assert "something happened" in process.stderr
    assert "ValueError: no" in process.stderr
    assert "\x1b" not in process.stderr
