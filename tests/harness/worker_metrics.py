"""Snapshots of workers, and the series that a scrape has after them."""

from __future__ import annotations

import dataclasses
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from harness.routing import LADDERS
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import (
    GraphReport,
    GraphState,
    Histogram,
    LaneReport,
    Snapshot,
)
from shaperouter_service.telemetry.workers import WorkerMetrics

PREFILL, DECODE = GraphKind.PREFILL, GraphKind.DECODE
SIGNATURE = {"model", "kind", "rows", "length", "beams"}

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def histogram(*counts: int, total: float = 0.0) -> Histogram:
    """A histogram with the bounds 0.1 and 1."""
    return Histogram(bounds=[0.1, 1], counts=counts or (0, 0, 0), sum=total)


def graph(length: int = 16, kind: GraphKind = PREFILL, **fields: Any) -> GraphReport:
    """What a worker reports about a graph."""
    defaults: dict[str, Any] = {
        "signature": Signature(model="gpt2", kind=kind, rows=1, length=length, beams=1),
        "worker": "",
        "state": GraphState.READY,
        "traces": 1,
        "compiles": 1,
        "compile_seconds": histogram(0, 0, 1, total=2.5),
        "stall_seconds": histogram(1, 0, 2, total=5.0),
        "device_seconds": histogram(3, 2, 1, total=3.5),
    }
    return GraphReport(**(defaults | fields))


def snapshot(
    *graphs: GraphReport,
    worker: str = "worker-0",
    incarnation: str = "1",
    device: str = "CPU:0",
    kernels: str = "avx512",
    **fields: Any,
) -> Snapshot:
    """What a worker with these graphs reports."""
    lane = LaneReport(
        model="gpt2",
        beams=1,
        active_slots=3,
        total_slots=8,
        encode_padding_tokens=5,
        prefill_padding_tokens=10,
        decode_padding_tokens=20,
        proposed_tokens=9,
        accepted_tokens=7,
        draft_proposed_tokens=4,
        draft_accepted_tokens=3,
    )
    defaults: dict[str, Any] = {
        "models": [
            ServedModel(
                ladders=LADDERS,
                name="gpt2",
                kv_cache_bytes=1000,
                weight_bytes=500,
                weight_dtype="int8",
                kernels=kernels,
            )
        ],
        "lanes": [lane],
        "compile_queue_depth": 2,
    }
    return Snapshot(
        worker=worker,
        incarnation=incarnation,
        device=device,
        graphs=[dataclasses.replace(each, worker=worker) for each in graphs],
        **(defaults | fields),
    )


class Scraped:
    """Worker metrics, and what a scrape of them shows."""

    def __init__(self) -> None:
        """Starts without workers."""
        self.registry = CollectorRegistry()
        self.metrics = WorkerMetrics(self.registry)

    def series(self) -> Series:
        """Every sample; two of the same name and labels fail."""
        found: Series = {}
        text = generate_latest(self.registry).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found, f"{sample} is there twice"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of all series of a name that have these labels; None if there are none."""
        values = [
            value
            for (sample, its), value in self.series().items()
            if sample == name and labels.items() <= dict(its).items()
        ]
        return sum(values) if values else None
