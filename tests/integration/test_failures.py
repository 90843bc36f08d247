"""What users see when processes die, ports are in use or models are broken."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.service import (
    GOLDENS,
    LOCAL,
    Daemon,
    Service,
    daemon,
    kept_compilations,
    process_exists,
    serving,
)
from harness.waiting import TIMEOUT, wait_until
from shaperouter import (
    CallCancelledError,
    Client,
    InvalidArgumentError,
    ModelNotFoundError,
    Signature,
    UnavailableError,
)

# Events in the log of a service that stops, in order.
ENDS = ("stopping: waiting for running requests", "worker draining", "stopped")
MODEL = f"--model=endless={GOLDENS / 'gpt2-untied'}"

# A worker whose models are never loaded: it must be stopped meanwhile.
LOADING = """
import threading
from shaperouter_service.cli import main
from shaperouter_service.roles import worker

def load(*_):
    print("loading", flush=True)
    threading.Event().wait()

worker._make_engine = load
main()
"""


def test_a_worker_killed_before_its_first_token_is_replaced_without_an_error(
    service: Service, client: Client
) -> None:
    pid = service.worker_pid()
    with ThreadPoolExecutor() as pool:
        # It must not end before it is killed.
        os.kill(pid, signal.SIGSTOP)
        answer = pool.submit(client.generate, [1, 2, 3], model="endless", max_new_tokens=5)
        wait_until(lambda: service.metric("shaperouter_num_requests_waiting") == 1)
        os.kill(pid, signal.SIGKILL)
        assert len(answer.result().token_ids) == 5
    assert service.worker_pid() != pid


def test_no_worker_outlives_a_killed_parent() -> None:
    with serving(MODEL, env=kept_compilations()) as service:
        pid = service.worker_pid()
        service.process.kill()
        wait_until(lambda: not process_exists(pid))


def test_a_stop_lets_running_requests_finish_and_ends_the_workers() -> None:
    # A compilation may take long on a busy machine.
    with serving(MODEL, "--grace=240") as service, Client(service.address) as client:
        pid = service.worker_pid()
        with client.stream(
            [1, 2], max_new_tokens=100, num_beams=2, on_stall=_stopping(service)
        ) as stream:
            tokens = [token for delta in stream for token in delta.token_ids]
        assert len(tokens) == 100
        assert service.process.wait(TIMEOUT) == 0
        wait_until(lambda: not process_exists(pid))
        service.wait_for_log("stopped")
        order = [line["event"] for line in service.log if line["event"] in ENDS]
        assert order == list(ENDS)


def test_a_stop_without_grace_during_a_compilation_is_clean() -> None:
    with serving(MODEL, "--grace=0") as service, Client(service.address) as client:
        with (
            client.stream(
                [1], max_new_tokens=2, num_beams=2, on_stall=_stopping(service)
            ) as stream,
            pytest.raises(UnavailableError),
        ):
            for _ in stream:
                pass
        assert service.process.wait(TIMEOUT) == 0
        assert not service.events("not a log line")


def _stopping(service: Service) -> Callable[[Signature], None]:
    """Stops the service once a request waits there for a compilation.

    Only the first request with beam search stalls: the graphs of others are made before the service
    is ready.
    """
    return lambda _: service.process.send_signal(signal.SIGTERM)


def test_a_worker_stopped_while_it_loads_its_models_ends_at_once(tmp_path: Path) -> None:
    path = tmp_path / "worker.sock"
    with subprocess.Popen(
        [
            *(sys.executable, "-c", LOADING, "worker", MODEL),
            *(f"--listen=unix:{path}", "--metrics-listen=off", "--log-format=json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == "loading\n"
        worker.terminate()
        _, log = worker.communicate(timeout=TIMEOUT)
    assert worker.returncode == 0
    assert "worker stopped while it started" in log
    assert not path.exists()


def test_a_separate_router_and_worker_serve_together(tmp_path: Path) -> None:
    socket_address = f"unix:{tmp_path / 'worker.sock'}"
    worker = daemon(
        "worker",
        MODEL,
        f"--listen={socket_address}",
        f"--metrics-listen={LOCAL}",
        env=os.environ | kept_compilations(),
    )
    router = Service(
        "router",
        MODEL,
        f"--worker={socket_address}",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
    )
    try:
        # Asked for before the worker is there: it waits.
        with Client(router.address) as client:
            assert len(client.generate([1], max_new_tokens=3).token_ids) == 3
        # Each pod shows its own: requests here, graphs at the worker.
        assert router.metric("shaperouter_requests_total", code="OK") == 1
        assert router.metric("shaperouter_graphs") == 0
    finally:
        router.close()
        worker.terminate()
        _, log = worker.communicate(timeout=TIMEOUT)
    assert worker.returncode == 0
    assert "graph ready" in log


def test_a_worker_stopped_during_a_compilation_ends_soon_and_cleanly(tmp_path: Path) -> None:
    """Even while a router watches it, which must not delay it until the end of the grace period."""
    socket_address = f"unix:{tmp_path / 'worker.sock'}"
    worker = daemon(
        "worker",
        MODEL,
        f"--listen={socket_address}",
        f"--metrics-listen={LOCAL}",
        "--log-format=json",
    )
    router = Service(
        "router",
        MODEL,
        f"--worker={socket_address}",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
    )
    try:
        router.wait_until_ready()
        stalled = threading.Event()
        with (
            Client(router.address) as client,
            client.stream(
                [1], max_new_tokens=2, num_beams=2, on_stall=lambda _: stalled.set()
            ) as stream,
        ):

            def read() -> None:
                with contextlib.suppress(CallCancelledError):
                    list(stream)

            reader = threading.Thread(target=read)
            reader.start()
            assert stalled.wait(TIMEOUT)
            stream.cancel()
            reader.join()
            worker.terminate()
            _, log = worker.communicate(timeout=TIMEOUT)
        assert worker.returncode == 0
        assert all(line.startswith("{") for line in log.splitlines()), log
    finally:
        worker.kill()
        router.close()


def test_bad_requests_are_refused_by_name_and_the_service_continues(
    service: Service, client: Client
) -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'nope'; this service has ending"):
        client.generate([1], model="nope")
    with pytest.raises(InvalidArgumentError, match=r"at most 127 tokens .* got 128"):
        client.generate([1] * 128, model="endless")
    with pytest.raises(InvalidArgumentError, match="at most 27 after a prompt of 101") as error:
        client.generate([1] * 101, model="endless", max_new_tokens=28)
    assert [v.field for v in error.value.violations] == ["options.max_new_tokens"]
    with pytest.raises(InvalidArgumentError, match=r"options.temperature: .* got nan"):
        client.generate([1], model="endless", temperature=float("nan"))
    with pytest.raises(InvalidArgumentError, match=r"token_ids.ids\[1\]: .* 96 .* got 97"):
        client.generate([1, 97], model="endless")
    with pytest.raises(InvalidArgumentError, match="has no tokenizer"):
        client.generate("hello", model="endless")
    assert client.generate([1], model="endless", max_new_tokens=1).token_ids


def test_a_huge_message_is_refused_unread_and_the_service_continues(client: Client) -> None:
    from shaperouter import MessageTooLargeError

    with pytest.raises(MessageTooLargeError, match="1048576"):
        client.generate("x" * 100_000_000, model="endless")
    assert client.generate([1], model="endless", max_new_tokens=1).token_ids


def _startup_error(*arguments: str) -> str:
    """Runs the service until it ends with the exit code of a startup error."""
    process = daemon(*arguments, "--log-format=json")
    _, log = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 78, log
    assert "Traceback" not in log
    return log


@pytest.mark.parametrize("option", ["listen", "http-listen", "metrics-listen"])
def test_a_port_in_use_is_named(option: str) -> None:
    ports = {"listen": LOCAL, "metrics-listen": LOCAL}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ports[option] = address
        settings = [f"--{name}={value}" for name, value in ports.items()]
        log = _startup_error("serve", MODEL, *settings)
    assert f"{option}: cannot listen on {address}" in log


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for sockets, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_unix_socket_is_taken_over_from_a_dead_service_and_from_no_other(
    short_path: Path,
) -> None:
    address = f"unix:{short_path / 'router.sock'}"
    settings = ("serve", MODEL, f"--listen={address}", f"--metrics-listen={LOCAL}")
    environment = kept_compilations() | {"TMPDIR": str(short_path)}
    killed = Daemon(*settings, env=environment)
    try:
        killed.wait_for_log("worker connected")
        assert f"listen: cannot listen on {address}: another process listens there" in (
            _startup_error(*settings)
        )
        (left,) = short_path.glob("shaperouter-serve-*")
    finally:
        killed.process.kill()
        killed.close()
    successor = Daemon(*settings, env=environment)
    try:
        successor.wait_for_log("worker connected")
        (directory,) = short_path.glob("shaperouter-serve-*")
        assert directory != left
        assert successor.stop() == 0
    finally:
        successor.close()
    assert list(short_path.iterdir()) == []


def test_a_start_with_an_incomplete_model_directory_fails_by_name(
    tmp_path: Path,
) -> None:
    broken = Path(shutil.copytree(GOLDENS / "gpt2-untied", tmp_path / "broken"))
    shard = sorted(broken.glob("model-*.safetensors"))[-1]
    shard.unlink()
    log = _startup_error(
        "serve", f"--model=m={broken}", f"--listen={LOCAL}", f"--metrics-listen={LOCAL}"
    )
    assert f"shard '{shard.name}' is missing" in log


def test_the_command_streams_from_a_shell(service: Service) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "shaperouter"),
            f"--address={service.address}",
            *("generate", "1 2 3", "--token-ids", "--model=endless", "--max-new-tokens=5"),
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert '"generated_tokens": 5' in done.stdout
