"""Messages that wait for a stream travel together, up to a size."""

from __future__ import annotations

import asyncio

import pytest

from shaperouter.v1 import worker_pb2
from shaperouter_service.rpc import outbox
from shaperouter_service.rpc.outbox import Outbox


def update(run_id: int) -> worker_pb2.RunUpdate:
    return worker_pb2.RunUpdate(run_id=run_id, error_status=b"0123456789")


def test_what_is_ready_travels_together_and_in_order() -> None:
    async def scenario() -> None:
        box = Outbox[worker_pb2.RunUpdate]()
        batches = box.batches()
        box.put(update(1))
        box.put(update(2))
        assert await anext(batches) == [update(1), update(2)]
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        box.put(update(3))
        assert await waiting == [update(3)]

    asyncio.run(scenario())


def test_a_batch_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH_BYTES", 2 * update(1).ByteSize())

    async def scenario() -> None:
        box = Outbox[worker_pb2.RunUpdate]()
        for run_id in range(1, 6):
            box.put(update(run_id))
        box.close()
        sizes = [len(batch) async for batch in box.batches()]
        assert sizes == [2, 2, 1]

    asyncio.run(scenario())
