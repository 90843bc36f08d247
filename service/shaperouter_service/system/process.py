"""This process: its exit codes, its priority, its file descriptors and its parent."""

import contextlib
import faulthandler
import os
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger(__name__)

# EX_SOFTWARE of sysexits.h: a defect; the process should be started again.
EXIT_DEFECT = 70

# Minimum bytes of the stacks of Python's threads, which most systems set anyway. A worker's threads
# follow grammars, and without a limit (`ulimit -s unlimited`) they would have a quarter of it.
STACK_BYTES = 8 * 2**20

# Seconds within which a thread begins, also on a busy machine.
BEGIN_SECONDS = 10.0

# EX_CONFIG of sysexits.h: starting again helps only after a change of configuration.
EXIT_CONFIG = 78

# Exit code after Ctrl-C, as shells report it: 128 plus the number of SIGINT.
EXIT_INTERRUPTED = 130
# Likewise after SIGTERM, before it serves. A process that serves ends with 0 then.
EXIT_TERMINATED = 143

# The file descriptor of standard error.
_STDERR = 2

# A tenth of the weight of a serving thread when both need a core: a compilation slows serving less,
# and still finishes under any load.
NICE = 10

# More descriptors than the connections of any router need. Some systems allow a billion, and
# programs that visit all of them take minutes.
ENOUGH_DESCRIPTORS = 65_536

# Descriptors reserved for other uses than incoming connections: connections to workers, pipes of a
# starting worker, files that are reloaded.
RESERVED_DESCRIPTORS = 256


def lower_priority() -> None:
    """Lowers the priority of this thread, and of threads that it starts, below serving threads.

    XLA generates code on its own threads, one for each core. It starts them at a process's first
    compilation, from the requesting thread, so that thread must have the low priority.
    """
    thread = threading.get_native_id()
    # Relative, because the service may have started with a lower priority, which only the superuser
    # may raise. The system limits it to the lowest one.
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


def run_at_low_priority(work: Callable[[], T]) -> T:
    """Runs `work` on a low-priority thread and returns its result."""
    with ThreadPoolExecutor(1, initializer=lower_priority) as threads:
        return threads.submit(work).result()


def raise_descriptor_limit() -> None:
    """Raises this process's limit of descriptors, often 1024, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(ENOUGH_DESCRIPTORS, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections() -> int:
    """Descriptors for incoming connections: all but the reserved ones, or half if there are few."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = ENOUGH_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    return max(limit - RESERVED_DESCRIPTORS, limit // 2)


def prepare_process() -> None:
    """Prepares a process that serves.

    Sets the stack of new threads if it is too small, raises the limit of descriptors, watches new
    threads, and prints the Python stacks of all threads on stderr if native code crashes.
    """
    faulthandler.enable(_STDERR)
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if limit == resource.RLIM_INFINITY or limit < STACK_BYTES:
        threading.stack_size(STACK_BYTES)
    raise_descriptor_limit()
    exit_if_threads_cannot_begin()


def exit_if_threads_cannot_begin() -> None:
    """Ends this process if a thread does not begin.

    Without memory, a new thread of Python ends before it can report that it has begun. The thread
    that starts it waits for that report forever, also when there is memory again.
    """
    threading.Thread(target=_watch_beginnings, name="beginnings", daemon=True).start()


def _watch_beginnings() -> None:
    known: set[threading.Thread] = set()
    while True:
        # Nothing tells that a thread has not begun, and a timer would need a thread of its own.
        time.sleep(BEGIN_SECONDS)
        with contextlib.suppress(MemoryError):
            # A thread has an identity once it has begun.
            waited_for = {each for each in threading.enumerate() if each.ident is None}
            if waited_for & known:
                try:
                    log.critical("ended: a thread could not begin, most likely without memory")
                finally:
                    os._exit(EXIT_DEFECT)
            known = waited_for


def exit_with_parent() -> None:
    """Ends this process as soon as standard input, a pipe from its parent, is closed.

    This works however the parent ends, including SIGKILL, and whatever this process is doing.
    """
    threading.Thread(target=_exit_at_end_of_input, name="parent", daemon=True).start()


def _exit_at_end_of_input() -> None:
    # Not with Python's own stdin, whose lock this thread would hold while the interpreter exits.
    os.read(0, 1)
    os._exit(0)
