"""The metrics of the program, found in its code."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase

from harness.routing import LADDERS
from shaperouter.v1 import generation_pb2
from shaperouter_service import telemetry
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import (
    CallQueueReport,
    GraphReport,
    GraphState,
    Histogram,
    LaneReport,
    PrefixReport,
    Snapshot,
    StartTimes,
)
from shaperouter_service.telemetry.metrics_server import make_registry
from shaperouter_service.telemetry.workers import WorkerMetrics

# The classes whose calls are counted.
_SERVICES = list(generation_pb2.DESCRIPTOR.services_by_name.values())

# Suffixes of a metric's name, by the kind of metric.
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}


@dataclass(frozen=True, kw_only=True)
class KnownMetric:
    """A metric.

    Attributes:
        name: Name as scraped; for a histogram, without the suffixes of its series.
        series: The names of its series.
        kind: counter, gauge, histogram or info.
        labels: Its labels, in order.
        help: Its help text.
    """

    name: str
    series: tuple[str, ...]
    kind: str
    labels: tuple[str, ...]
    help: str


@functools.cache
def metrics() -> Mapping[str, KnownMetric]:
    """All metrics of routers and workers by name, including those of the Python process."""
    registry = make_registry("serve")
    given = {
        "registry": registry,
        "services": _SERVICES,
        "models": ["demo"],
    }
    for owner in _owners():
        made = owner(*(given[name] for name in _parameters(owner)))
        if isinstance(made, WorkerMetrics):
            made.observe(_snapshot())
    labels = {
        collector._name: collector._labelnames
        for collector in registry._collector_to_names
        if isinstance(collector, MetricWrapperBase)
    }
    found = {}
    for family in registry.collect():
        suffixes = SUFFIXES.get(family.type, [""])
        sampled = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = family.name + (suffixes[0] if len(suffixes) == 1 else "")
        found[name] = KnownMetric(
            name=name,
            series=tuple(family.name + suffix for suffix in suffixes),
            kind=family.type,
            labels=tuple(labels.get(family.name) or sorted(sampled)),
            help=family.documentation,
        )
    return found


def _parameters(owner: type[object]) -> list[str]:
    parameters = inspect.signature(owner).parameters.values()
    names = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    known = {"registry", "services", "models"}
    assert set(names) <= known, f"{owner}: say how to make one"
    return names


def _owners() -> Iterator[type[object]]:
    """The classes of telemetry that register metrics, by their names."""
    for module in pkgutil.iter_modules(telemetry.__path__):
        loaded = importlib.import_module(f"{telemetry.__name__}.{module.name}")
        for name, member in inspect.getmembers(loaded, inspect.isclass):
            if name.endswith("Metrics") and member.__module__ == loaded.__name__:
                yield member


def _snapshot() -> Snapshot:
    """A snapshot of a worker with a value for each label."""
    histogram = Histogram(bounds=[1], counts=[1, 0], sum=1)
    return Snapshot(
        worker="worker-0",
        incarnation="1",
        device="CPU:0",
        start=StartTimes(import_seconds=1),
        models=[ServedModel(name="demo", kv_cache_bytes=1, ladders=LADDERS)],
        graphs=[
            GraphReport(
                signature=Signature(
                    model="demo", kind=GraphKind.DECODE, rows=1, length=64, beams=1
                ),
                worker="worker-0",
                state=GraphState.READY,
                compile_seconds=histogram,
                stall_seconds=histogram,
                device_seconds=histogram,
                overhead_seconds=0.0,
            )
        ],
        lanes=[LaneReport(model="demo", beams=1, total_slots=1)],
        call_queues=[CallQueueReport(model="demo")],
        prefixes=[PrefixReport(model="demo")],
    )
