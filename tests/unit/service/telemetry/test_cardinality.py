"""Whatever callers send, metrics have no more series than the configuration allows."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import string
from pathlib import Path

import grpc
from grpc import aio
from prometheus_client import CollectorRegistry

from harness.fake_model import SLOTS
from harness.fake_worker import FakeWorker
from harness.router import Play, Router
from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2
from shaperouter_service.auth import token_digest
from shaperouter_service.edge.grpc.services import DOOR as SHAPEROUTER
from shaperouter_service.edge.inference.grpc.services import DOOR as INFERENCE
from shaperouter_service.edge.tfserving.services import DOOR as TFSERVING
from shaperouter_service.fleet.link import Loss
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.routing.snapshots import GraphState, StartTimes
from shaperouter_service.telemetry.auth import Refusal
from shaperouter_service.telemetry.fleet import Recycling
from shaperouter_service.telemetry.metrics_server import make_registry
from shaperouter_service.telemetry.refusals import REASONS
from shaperouter_service.wire import models as wire_models

CLIENTS = ("search", "chat")
SERVICES = (*SHAPEROUTER.services, *INFERENCE.services, *TFSERVING.services)


def allowed(worker: FakeWorker) -> dict[str, set[str]]:
    """Values that each label may have, from the configuration and from closed sets of the code."""
    model = worker.models[0]
    ladders = wire_models.LADDERS.from_message(model.ladders)
    signatures = list(ladders.signatures(model.name))
    return {
        "model": {model.name, "(unknown)"},
        "kind": {*GraphKind, "prompt", "generation"},
        "rows": {str(signature.rows) for signature in signatures},
        "length": {str(signature.length) for signature in signatures},
        "beams": {str(signature.beams) for signature in signatures},
        "device": {"CPU:0"},
        "dtype": {model.weight_dtype},
        "kernels": {model.kernels or "none"},
        "worker": {worker.name},
        "phase": {field.name for field in dataclasses.fields(StartTimes)},
        "code": {code.name for code in grpc.StatusCode},
        "client": set(CLIENTS),
        "fit": {"tight", "loose"},
        "source": {"ngram", "draft"},
        "state": {*GraphState, "active", "free"},
        "result": {"compiled", "loaded", "failed", *Recycling},
        "reason": {*Loss, *Refusal, *REASONS},
        "limit": {"requests", "tokens"},
        "grpc_type": {"unary", "server_stream", "bidi_stream"},
        "grpc_service": {service.full_name for service in SERVICES},
        "grpc_method": {method.name for service in SERVICES for method in service.methods},
        "grpc_code": {code.name for code in grpc.StatusCode},
    }


def test_callers_cannot_choose_values_of_labels(play: Play, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    entries = [f'[clients.{name}]\nsha256 = ["{token_digest(name)}"]\n' for name in CLIENTS]
    tokens.write_text("".join(entries) + "max_requests = 1\n")
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)

    def word() -> str:
        return "".join(source.choices(string.ascii_letters, k=8))

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await worker.make_first_graphs()
        for _ in range(100):
            length = source.randint(1, 70)
            request = generation_pb2.GenerateRequest(
                model=source.choice(["tiny", "", word()]),
                token_ids=generation_pb2.TokenIds(ids=[1] * length),
                options=generation_pb2.GenerationOptions(
                    max_new_tokens=source.randint(1, 70), num_beams=source.choice([1, 1, 3, 99])
                ),
            )
            metadata = (
                ("x-client-id", word()),
                ("authorization", f"Bearer {source.choice([*CLIENTS, word()])}"),
            )
            with contextlib.suppress(aio.AioRpcError):
                await router.generation.Generate(request, metadata=metadata, timeout=TIMEOUT)
        values = allowed(worker)
        families = [
            family
            for family in router.registry.collect()
            if family.name.startswith(("shaperouter_", "grpc_"))
        ]
        beyond = {
            (family.name, label, value)
            for family in families
            for sample in family.samples
            for label, value in sample.labels.items()
            if label != "le" and value not in values[label]
        }
        assert not beyond
        assert router.metric("requests_total", model="(unknown)", code="NOT_FOUND") > 0
        assert router.metric("workers") == 1
        assert router.free_slots == SLOTS

    play(scenario, settings={"tokens": tokens})


def test_every_metric_has_a_help(play: Play) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        for family in router.registry.collect():
            assert family.documentation.endswith("."), family.name
            for unit in ("seconds", "bytes"):
                if family.name.endswith(f"_{unit}"):
                    assert f"in {unit}" in family.documentation, family.name

    play(scenario)


def test_a_metric_has_version_and_role() -> None:
    registry: CollectorRegistry = make_registry("router")
    (info,) = (family for family in registry.collect() if family.name == "shaperouter_build")
    (sample,) = info.samples
    assert sample.name == "shaperouter_build_info"
    assert sample.labels["role"] == "router"
    assert sample.labels["version"]
