"""Samples the memory, threads and descriptors of a campaign's service, and reports growth."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from chaos.stage import Stage
from harness.trends import FEWEST, means, trend_table

# Seconds between two samples.
EVERY = 10.0
# Models come and go within a minute or two. The mean of so many samples says little of that.
GROUP = 15
CACHE = "compile cache in MiB"


@contextlib.contextmanager
def watched(stage: Stage, file: Path) -> Iterator[None]:
    """Writes samples to a file while the context lasts: a line of JSON for each."""
    over = threading.Event()
    file.unlink(missing_ok=True)
    thread = threading.Thread(target=_watch, args=[stage, file, over], daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(stage: Stage, file: Path, over: threading.Event) -> None:
    began = time.monotonic()
    with file.open("w", encoding="utf-8", buffering=1) as lines:
        while not over.wait(EVERY):
            sample = {"seconds": time.monotonic() - began} | _sample(stage)
            lines.write(json.dumps(sample) + "\n")


def _sample(stage: Stage) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for process in (*stage.routers, *stage.workers):
        for quantity, value in process.measured().items():
            found[f"{process.name}: {quantity}"] = value
    files = (path for path in stage.disk.directory.rglob("*") if path.is_file())
    found[CACHE] = sum(path.stat().st_size for path in files) / 2**20
    return found


def growth(file: Path) -> Table | None:
    """A table of the slopes of all quantities; None if there are too few samples."""
    samples = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if len(samples) < 2 * FEWEST * GROUP:
        return None
    columns = {name: _column(samples, name) for name in samples[0]}
    hours = [seconds / 3600 for seconds in columns.pop("seconds")]
    return trend_table(hours, columns)


def _column(samples: Sequence[Mapping[str, float]], name: str) -> Sequence[float]:
    return means([sample.get(name, float("nan")) for sample in samples], GROUP)
