"""Injection of each kind of fault into the service."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from chaos.faults import NEAR_CALLERS, Fault, FaultKind
from chaos.processes import Process
from chaos.stage import ROUTERS, WORKERS, Stage
from harness.proxy import Proxy

# Seconds: the longest wait of a piece of data on a delayed network.
DELAY = 0.3


class Injection:
    """Does faults to a service. Any thread may call it."""

    def __init__(self, stage: Stage, poison: Callable[[], None]) -> None:
        """Takes the service, and a function that sends a poisonous request."""
        self._stage, self._poison = stage, poison

    def run(self, fault: Fault) -> None:
        """Does a fault, and undoes it when its time is over."""
        with self._applied(fault):
            time.sleep(fault.seconds)

    def _applied(self, fault: Fault) -> AbstractContextManager[None]:
        """Injects a fault; a lasting fault is undone at the end of the context."""
        stage = self._stage
        if fault.kind in NEAR_CALLERS:
            process = stage.routers[fault.target % ROUTERS]
            links = stage.caller_links[fault.target % ROUTERS]
        else:
            process = stage.workers[fault.target % WORKERS]
            links = [stage.worker_links[fault.target % WORKERS]]
        for applied in (
            _applied_to_process(fault.kind, process),
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
            case FaultKind.POISON:
                self._poison()
        return contextlib.nullcontext()


def _applied_to_process(kind: FaultKind, process: Process) -> AbstractContextManager[None] | None:
    match kind:
        case FaultKind.KILL_WORKER | FaultKind.KILL_ROUTER:
            process.send(signal.SIGKILL)
        case FaultKind.ROLL_WORKER | FaultKind.ROLL_ROUTER:
            process.send(signal.SIGTERM)
        case FaultKind.KILL_TRACING:
            process.kill_children()
        case FaultKind.FREEZE_WORKER | FaultKind.FREEZE_ROUTER:
            return _frozen(process)
        case FaultKind.SLOW_WORKER:
            return _during(process.slow)
        case FaultKind.STARVE_WORKER | FaultKind.STARVE_ROUTER:
            return _during(process.starve)
        case _:
            return None
    return contextlib.nullcontext()


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
