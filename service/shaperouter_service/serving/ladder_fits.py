"""Ladders fitted to the recorded traffic, beside those that the models have."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from shaperouter_service.routing.ladder_fit import Fit, fit_traffic
from shaperouter_service.serving.models import Models
from shaperouter_service.traffic_record import read_record

# Seconds for which a fit is shown again: workers save the record about twice a minute.
_FRESH = 30.0


class LadderFits:
    """Fits ladders when somebody asks. Only the event loop may use it."""

    def __init__(self, directory: Path | None, models: Models) -> None:
        """Takes the record's directory, None if this router has none, and the served models."""
        self._directory = directory
        self._models = models
        self._fitting = asyncio.Lock()
        self._fits: Sequence[Fit] = ()
        self._fresh_until = float("-inf")

    @property
    def has_record(self) -> bool:
        """Whether this router can read a record of traffic."""
        return self._directory is not None

    async def fits(self) -> Sequence[Fit]:
        """The fits of the served models that have recorded traffic, by name.

        They may be half a minute old.
        """
        if self._directory is None:
            return ()
        async with self._fitting:
            if time.monotonic() >= self._fresh_until:
                names = {model.name for model in self._models.loaded()}
                self._fits = await asyncio.to_thread(_fits, self._directory, names)
                self._fresh_until = time.monotonic() + _FRESH
            return self._fits


def _fits(directory: Path, names: set[str]) -> Sequence[Fit]:
    record = read_record(directory)
    return [fit_traffic(traffic) for name, traffic in sorted(record.items()) if name in names]
