"""Injection of each kind of fault into the service."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

from chaos.clock import Clock
from chaos.faults import OF_ROUTERS, Fault, FaultKind
from chaos.memory import own_group
from chaos.processes import Process
from chaos.stage import ROUTERS, WORKERS, Stage
from harness.proxy import Proxy

# Seconds: the longest wait of a piece of data on a delayed network.
DELAY = 0.3


def lacking() -> Mapping[FaultKind, str]:
    """What this machine lacks for some kinds of faults."""
    lacks: dict[FaultKind, str] = {}
    if os.geteuid() != 0:
        lacks |= dict.fromkeys((FaultKind.FILL_CACHE, FaultKind.LOCK_CACHE), "root")
    if own_group() is None:
        lacks[FaultKind.EXHAUST_WORKER] = (
            "a writable memory controller of control groups, version 1"
        )
    if not Clock.can_be_wrong:
        lacks |= dict.fromkeys((FaultKind.SKEW_WORKER, FaultKind.SKEW_ROUTER), "a C compiler")
    if not shutil.which("strace"):
        lacks[FaultKind.SLOW_FILES] = "strace"
    return lacks


class Injection:
    """Does faults to a service. Any thread may call it."""

    def __init__(self, stage: Stage, requests: Mapping[FaultKind, Callable[[Fault], None]]) -> None:
        """Takes the service, and functions for the faults that are requests."""
        self._stage, self._requests = stage, requests

    def run(self, fault: Fault) -> None:
        """Does a fault, and undoes it when its time is over."""
        if send := self._requests.get(fault.kind):
            send(fault)
            return
        with self._applied(fault):
            time.sleep(fault.seconds)

    def _applied(self, fault: Fault) -> AbstractContextManager[None]:
        """Injects a fault; a lasting fault is undone at the end of the context."""
        stage = self._stage
        if fault.kind in OF_ROUTERS:
            process = stage.routers[fault.target % ROUTERS]
            links = stage.caller_links[fault.target % ROUTERS]
        else:
            process = stage.workers[fault.target % WORKERS]
            links = [stage.worker_links[fault.target % WORKERS]]
        for applied in (
            _applied_to_process(fault, process),
            _applied_to_network(fault.kind, links),
        ):
            if applied is not None:
                return applied
        return self._applied_to_files(fault)

    def _applied_to_files(self, fault: Fault) -> AbstractContextManager[None]:
        stage = self._stage
        match fault.kind:
            case FaultKind.FILL_CACHE:
                return stage.disk.filled()
            case FaultKind.LOCK_CACHE:
                return stage.disk.locked()
            case FaultKind.DAMAGE_CACHE:
                stage.disk.damage(fault.seed)
            case FaultKind.RENEW_TOKENS:
                stage.renew_tokens()
            case FaultKind.TEAR_TOKENS:
                return stage.torn_tokens()
            case FaultKind.RENEW_CERTIFICATES:
                stage.renew_certificates()
        return contextlib.nullcontext()


def _applied_to_process(fault: Fault, process: Process) -> AbstractContextManager[None] | None:
    if fault.kind in _SIGNALS:
        process.send(_SIGNALS[fault.kind])
        return contextlib.nullcontext()
    if fault.kind in _DISTURBANCES:
        return _during(partial(_DISTURBANCES[fault.kind], process))
    match fault.kind:
        case FaultKind.KILL_GRAMMARS:
            process.kill_children()
            return contextlib.nullcontext()
        case FaultKind.FREEZE_WORKER | FaultKind.FREEZE_ROUTER:
            return _frozen(process)
        case FaultKind.SKEW_WORKER | FaultKind.SKEW_ROUTER:
            return process.clock.wrong(fault.seed)
    return None


_SIGNALS = {
    FaultKind.KILL_WORKER: signal.SIGKILL,
    FaultKind.KILL_ROUTER: signal.SIGKILL,
    FaultKind.ROLL_WORKER: signal.SIGTERM,
    FaultKind.ROLL_ROUTER: signal.SIGTERM,
}
_DISTURBANCES: Mapping[FaultKind, Callable[[Process, threading.Event], None]] = {
    FaultKind.SLOW_WORKER: Process.slow,
    FaultKind.STARVE_WORKER: Process.starve,
    FaultKind.STARVE_ROUTER: Process.starve,
    FaultKind.BOUND_WORKER: Process.bound,
    FaultKind.EXHAUST_WORKER: Process.exhaust,
    FaultKind.SLOW_FILES: Process.slow_files,
}


def _applied_to_network(kind: FaultKind, links: list[Proxy]) -> AbstractContextManager[None] | None:
    match kind:
        case FaultKind.CUT_WORKER | FaultKind.CUT_CALLERS:
            return _cut(links)
        case FaultKind.DELAY_WORKER | FaultKind.DELAY_CALLERS:
            return _delayed(links)
        case FaultKind.DISCONNECT_WORKER | FaultKind.DISCONNECT_CALLERS:
            for link in links:
                link.disconnect()
            return contextlib.nullcontext()
    return None


@contextlib.contextmanager
def _frozen(process: Process) -> Iterator[None]:
    process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


@contextlib.contextmanager
def _during(disturb: Callable[[threading.Event], None]) -> Iterator[None]:
    """Disturbs from a thread inside of the context."""
    over = threading.Event()
    thread = threading.Thread(target=disturb, args=[over], daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _cut(links: list[Proxy]) -> Iterator[None]:
    for link in links:
        link.cut()
    try:
        yield
    finally:
        for link in links:
            link.mend()


@contextlib.contextmanager
def _delayed(links: list[Proxy]) -> Iterator[None]:
    for link in links:
        link.delay = DELAY
    try:
        yield
    finally:
        for link in links:
            link.delay = 0.0
