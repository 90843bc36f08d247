"""The kinds of faults, and what callers may notice of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What is done to the service."""

    KILL_WORKER = "kill a worker"
    FREEZE_WORKER = "freeze a worker"
    SLOW_WORKER = "slow a worker down"
    ROLL_WORKER = "roll a worker"
    STARVE_WORKER = "leave a worker no file descriptors"
    BOUND_WORKER = "refuse a worker more memory"
    EXHAUST_WORKER = "let a worker run out of memory"
    SKEW_WORKER = "set a worker's clock wrong"
    SLOW_FILES = "slow down how a worker opens and renames files"
    CUT_WORKER = "cut a worker off"
    DELAY_WORKER = "delay and reorder a worker's network"
    DISCONNECT_WORKER = "break a worker's connections"
    POISON = "send a request that hangs its worker"

    KILL_ROUTER = "kill a router"
    FREEZE_ROUTER = "freeze a router"
    ROLL_ROUTER = "roll a router"
    STARVE_ROUTER = "leave a router no file descriptors"
    SKEW_ROUTER = "set a router's clock wrong"
    KILL_GRAMMARS = "kill the process that compiles a router's grammars"
    CUT_CALLERS = "cut callers off"
    DELAY_CALLERS = "delay and reorder the callers' network"
    DISCONNECT_CALLERS = "break the callers' connections"

    FILL_CACHE = "fill the disk of the compile cache"
    LOCK_CACHE = "make the compile cache read-only"
    DAMAGE_CACHE = "flip bytes in the compile cache"

    RENEW_TOKENS = "renew the tokens"
    TEAR_TOKENS = "write half of the file of tokens"
    RENEW_CERTIFICATES = "renew the certificates"

    SWITCH_REVISION = "switch the revision of a model"
    VISIT_MODEL = "load and unload a model"


ALL = frozenset(FaultKind)

# Those that take a time. The others are over at once.
LASTING = frozenset(
    {
        FaultKind.FREEZE_WORKER,
        FaultKind.SLOW_WORKER,
        FaultKind.STARVE_WORKER,
        FaultKind.BOUND_WORKER,
        FaultKind.EXHAUST_WORKER,
        FaultKind.SKEW_WORKER,
        FaultKind.SLOW_FILES,
        FaultKind.CUT_WORKER,
        FaultKind.DELAY_WORKER,
        FaultKind.FREEZE_ROUTER,
        FaultKind.STARVE_ROUTER,
        FaultKind.SKEW_ROUTER,
        FaultKind.CUT_CALLERS,
        FaultKind.DELAY_CALLERS,
        FaultKind.FILL_CACHE,
        FaultKind.LOCK_CACHE,
        FaultKind.TEAR_TOKENS,
        FaultKind.VISIT_MODEL,
    }
)

# Those between a caller and the router that has the caller's request: the connection breaks, or is
# silent. With all other faults, callers notice only a pause.
NEAR_CALLERS = frozenset(
    {
        FaultKind.KILL_ROUTER,
        FaultKind.FREEZE_ROUTER,
        FaultKind.ROLL_ROUTER,
        FaultKind.STARVE_ROUTER,
        FaultKind.CUT_CALLERS,
        FaultKind.DELAY_CALLERS,
        FaultKind.DISCONNECT_CALLERS,
    }
)

# Those of a process, by whether it is a router.
OF_ROUTERS = NEAR_CALLERS | {FaultKind.SKEW_ROUTER, FaultKind.KILL_GRAMMARS}

# Those that take from a process what it needs to start, so that it may end while it starts.
STARVING = frozenset(
    {
        FaultKind.STARVE_WORKER,
        FaultKind.STARVE_ROUTER,
        FaultKind.BOUND_WORKER,
        FaultKind.TEAR_TOKENS,
    }
)

# Those that are no faults: every service meets them while it runs.
CHANGES = frozenset(
    {
        FaultKind.RENEW_TOKENS,
        FaultKind.RENEW_CERTIFICATES,
        FaultKind.SWITCH_REVISION,
        FaultKind.VISIT_MODEL,
    }
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a schedule.

    Attributes:
        kind: What happens.
        at: When it begins, in seconds since the schedule began.
        target: Which worker or router it happens to; taken modulo their number.
        seconds: How long it lasts; 0 if its kind is over at once.
        seed: For what the fault itself draws, such as the bytes that are flipped.
    """

    kind: FaultKind
    at: float
    target: int
    seconds: float
    seed: int

    def __str__(self) -> str:
        """The fault in words: when, what, to which process and for how long."""
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.kind} (#{self.target}){lasting}"
