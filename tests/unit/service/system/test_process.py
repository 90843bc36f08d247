"""A process that serves: its file descriptors, and what it prints if native code crashes."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import TIMEOUT
from shaperouter_service.system import process

# A server that has 128 descriptors and starts a process when it reads a line.
SERVER = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
from shaperouter_service.system.process import raise_descriptor_limit
from shaperouter_service.rpc.health import Health
from shaperouter_service.rpc.server import listen, make_server

async def main():
    raise_descriptor_limit()
    health, server = Health(), make_server([])
    health.begin()
    health.add_to(server)
    print(listen(server, "127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.readline)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('started', flush=True)", stdin=asyncio.subprocess.PIPE
    )
    await process.wait()

asyncio.run(main())
"""

CONNECTIONS = 200

# Aborts in a thread, as native code does.
CRASH = """
import os, threading
from shaperouter_service.system.process import prepare_process

def abort_in_native_code():
    os.abort()

prepare_process()
threading.Thread(target=abort_in_native_code).start()
"""

# Prints the bytes of a thread's stack.
STACK = """
import ctypes, threading
from shaperouter_service.system.process import prepare_process

def measure():
    pthread = ctypes.CDLL(None)
    attributes, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
    pthread.pthread_self.restype = ctypes.c_void_p
    pthread.pthread_getattr_np(ctypes.c_void_p(pthread.pthread_self()), attributes)
    pthread.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    print(size.value)

prepare_process()
thread = threading.Thread(target=measure)
thread.start()
thread.join()
"""


def test_threads_have_room_for_grammars_whatever_the_limit_of_the_stack() -> None:
    smaller = ["prlimit", f"--stack={process.STACK_BYTES // 8}:"]
    found = subprocess.run(
        [*smaller, sys.executable, "-c", STACK], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) >= process.STACK_BYTES


def test_a_process_starts_during_a_flood_of_connections(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    with (
        subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
        contextlib.ExitStack() as stack,
    ):
        assert server.stdin
        assert server.stdout
        port = int(server.stdout.readline())
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT))
            for _ in range(CONNECTIONS)
        ]
        # The last one is over the limit, so the server closes it.
        with contextlib.suppress(ConnectionResetError):
            assert connections[-1].recv(1) == b""
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline() == "started\n"


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 524_288, 65_536),
        (1024, 4096, 4096),
        (1024, resource.RLIM_INFINITY, 65_536),
        (100_000, 524_288, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_limit_is_raised_to_enough_or_to_the_hard_limit(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    process.raise_descriptor_limit()
    assert limits == ([] if raised is None else [(raised, hard)])


@pytest.mark.parametrize(("soft", "left"), [(1024, 768), (65_536, 65_280), (300, 150)])
def test_connections_get_all_but_a_reserve(
    monkeypatch: pytest.MonkeyPatch, soft: int, left: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert process.max_connections() == left


def test_a_crash_prints_which_code_crashed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGABRT
    assert "in abort_in_native_code" in ended.stderr
