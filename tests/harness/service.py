"""The service as real processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from harness.waiting import TIMEOUT, wait_until

GOLDENS = Path(__file__).parents[1] / "goldens"
LOCAL = "127.0.0.1:0"
# Maximum number of attempts to kill a worker before its run has ended.
ATTEMPTS = 10
Answer = TypeVar("Answer")
# Services do not share it with the engines of tests, since they compile with a user's settings.
CACHE = Path(__file__).parents[2] / "build" / "test-cache" / "services"

# Seconds in which every model gets a worker. Workers compile at a low priority, so beside other
# tests this takes several times as long as on a machine of their own.
START_TIMEOUT = 240.0

# Number of lines of the log that are shown if an event does not appear.
SHOWN_LINES = 20


# Services of tests run side by side, so they cannot all have the default port.
DEFAULTS = {
    "SHAPEROUTER_COMPILE_CACHE": "off",
    "SHAPEROUTER_BEAM_COVER": "off",
    "SHAPEROUTER_HTTP_LISTEN": LOCAL,
}


def kept_compilations() -> dict[str, str]:
    """The environment of a service for tests that are not about compiling.

    It loads graphs that services of earlier tests have compiled, and keeps those that it compiles.
    A file in place of the directory disables the record of traffic, so that no service compiles a
    graph because an earlier one needed it.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "traffic").touch()
    return {"SHAPEROUTER_COMPILE_CACHE": str(CACHE)}


def daemon(
    *arguments: str, env: Mapping[str, str] = os.environ, **settings: Any
) -> "subprocess.Popen[str]":
    """Starts `shaperouterd`, which logs to its standard error.

    By default it has no compile cache, and compiles only requested graphs.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "shaperouter_service", *arguments],
        env=DEFAULTS | dict(env),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


class Daemon:
    """A running `shaperouterd` of any role, and its log."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        # Tests of the engine set these; a service must compile and log with a user's settings.
        set_by_tests = {"XLA_FLAGS", "TF_XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL"}
        inherited = {name: os.environ[name] for name in os.environ.keys() - set_by_tests}
        self.process = daemon(*arguments, "--log-format=json", env=inherited | (env or {}))
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"event": "not a log line", "text": line})

    def events(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The log's lines of an event that have these fields."""
        return [
            line
            for line in list(self.log)
            if line["event"] == event and fields.items() <= line.items()
        ]

    def wait_for_log(
        self, event: str, *, count: int = 1, timeout: float = TIMEOUT, **fields: Any
    ) -> dict[str, Any]:
        """Waits until an event has been logged this many times, and returns the last line.

        Raises:
            TimeoutError: The event was not logged within `timeout` seconds.
        """

        def logged() -> bool:
            if self.process.poll() is not None and len(self.events(event, **fields)) < count:
                raise AssertionError(f"the service has ended: {self.log}")
            return len(self.events(event, **fields)) >= count

        try:
            wait_until(logged, timeout=timeout)
        except TimeoutError:
            lines = "\n".join(map(str, self.log[-SHOWN_LINES:]))
            raise TimeoutError(
                f"{event!r} {fields} was not logged {count} times within {timeout} s. The log's "
                f"last lines:\n{lines}"
            ) from None
        return self.events(event, **fields)[count - 1]

    def stop(self) -> int:
        """Stops it, and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)

    def close(self) -> None:
        """Ends it, if necessary by killing it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join()
        assert self.process.stderr
        self.process.stderr.close()


class Service(Daemon):
    """A running `shaperouterd` that clients can call."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        super().__init__(*arguments, env=env)
        try:
            listening = self.wait_for_log("listening")
        except BaseException:
            self.close()
            raise
        self.address = f"127.0.0.1:{listening['grpc_port']}"
        self.http_url = f"http://127.0.0.1:{listening['http_port']}"
        self.metrics_url = listening["metrics"]

    def wait_until_ready(self, *, count: int = 1) -> None:
        """Waits until every model has had a worker for the `count`-th time."""
        self.wait_for_log("ready", count=count, timeout=START_TIMEOUT)

    def worker_pid(self) -> int:
        """The newest worker process."""
        return int(self.events("worker started")[-1]["pid"])

    def losing_worker(self, run: Callable[[Callable[[], None]], Answer]) -> Iterator[Answer]:
        """Kills the worker during a run, and repeats this until a new worker has continued a run.

        A fast run may end before it is interrupted, because its output arrives with a delay.

        Args:
            run: Sends requests, calls its argument to kill the worker, and returns the answers.

        Yields:
            The answers of each attempt.
        """
        before = self.resumed()
        for _ in range(ATTEMPTS):
            pid = self.worker_pid()
            yield run(partial(os.kill, pid, signal.SIGKILL))
            if self.resumed() > before:
                return
            wait_until(lambda lost=pid: self.worker_pid() != lost)
        raise AssertionError(f"no new worker continued a run in {ATTEMPTS} attempts")

    def resumed(self) -> float:
        """Number of runs that another worker continued because theirs was lost."""
        return self.metric("shaperouter_runs_resumed_total", reason="lost")

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """All samples of /metrics, by name and labels."""
        with urllib.request.urlopen(self.metrics_url, timeout=TIMEOUT) as response:
            text = response.read().decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(
            value
            for (found, found_labels), value in self.metrics().items()
            if found == name and labels.items() <= dict(found_labels).items()
        )


@contextmanager
def serving(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Service]:
    """A ready `shaperouterd serve` on unused ports."""
    service = Service(
        "serve", f"--listen={LOCAL}", f"--metrics-listen={LOCAL}", *arguments, env=env
    )
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.close()


def process_exists(pid: int) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
