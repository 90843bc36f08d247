"""The host's clock in the place of a GPU's."""

import contextlib
from collections.abc import Iterator

import pytest

from shaperouter_service.kernels import clock


@contextlib.contextmanager
def graphs_read_a_clock() -> Iterator[None]:
    """Graphs that are traced or loaded inside of the context measure themselves, as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "_found_platform", lambda: "CPU")
        yield
