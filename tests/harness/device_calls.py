"""The calls of graphs that an engine makes, in order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from shaperouter_service.routing.signatures import Signature
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.watchdog import Watchdog


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a graph.

    Attributes:
        signature: The signature of the graph.
        runs: The runs that it served.
        generated: Number of tokens that each run had before.
    """

    signature: Signature
    runs: Sequence[Run]
    generated: Sequence[int]


def record_calls(
    patch: pytest.MonkeyPatch, before: Callable[[Call], None] = lambda _: None
) -> list[Call]:
    """Records all calls while the patch lasts.

    Args:
        patch: Undoes the recording.
        before: Called before each call, on the device thread.
    """
    calls: list[Call] = []
    watching = Watchdog.watching

    @contextmanager
    def recording(self: Watchdog, signature: Signature, runs: Sequence[Run]) -> Iterator[None]:
        generated = [run.generated for run in runs]
        calls.append(Call(signature=signature, runs=list(runs), generated=generated))
        before(calls[-1])
        with watching(self, signature, runs):
            yield

    patch.setattr(Watchdog, "watching", recording)
    return calls
