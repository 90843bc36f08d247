"""Loading and unloading of models through a router in this process, on workers that tests play."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.fake_model import describe_model
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router


def make_repository(root: Path, checkpoint: Path) -> Path:
    """A repository of two models, tiny-2 and tiny-3, which differ in a file."""
    for name in ("tiny-2", "tiny-3"):
        (root / name).mkdir()
        for path in checkpoint.iterdir():
            (root / name / path.name).write_bytes(path.read_bytes())
        (root / name / "config.json").write_text(f'{{"of": "{name}"}}')
    return root


async def load(
    router: Router,
    name: str,
    location: str = "",
    share: float | None = None,
) -> model_pb2.Model:
    request = model_pb2.LoadModelRequest(name=name, location=location, share=share)
    response: model_pb2.LoadModelResponse = await router.models.LoadModel(request, timeout=TIMEOUT)
    return response.model


async def unload(router: Router, name: str) -> None:
    await router.models.UnloadModel(model_pb2.UnloadModelRequest(name=name), timeout=TIMEOUT)


async def restart(worker: FakeWorker) -> None:
    """Kills a worker and starts it with the model that it is configured with."""
    await worker.kill()
    worker.models = [describe_model("tiny")]
    worker.orders.clear()
    await worker.start()
