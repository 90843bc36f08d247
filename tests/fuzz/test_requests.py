"""A router answers mutated requests or refuses them clearly, and keeps nothing of them."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.protobuf.message import Message
from grpc import StatusCode, aio

from harness.fake_worker import FakeWorker
from harness.mutation import mutated
from harness.service import LOCAL, Service
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2
from shaperouter_service.edge.inference.stubs import grpc_service_pb2
from shaperouter_service.generation import option_table
from shaperouter_service.generation.option import Kind, Needs
from shaperouter_service.text import CONSTRAINTS

COUNT = int(os.environ.get("FUZZ_REQUESTS", "400"))

# Every prompt and name contains it. It must not appear in the log, which never has prompts.
CANARY = "xyzzy-canary"

IDS = generation_pb2.TokenIds(ids=[1, 2, 3])
# A valid value of each kind of option.
VALUES: dict[Kind, Any] = {
    Kind.FLAG: True,
    Kind.COUNT: 1,
    Kind.SEED: 7,
    Kind.NUMBER: 0.5,
    Kind.TOKEN: 1,
    Kind.TOKENS: [2],
    Kind.TEXT: '{"type": "object"}',
    Kind.TEXTS: ["###"],
    Kind.LOGIT_BIAS: [generation_pb2.LogitBias(token_id=1, bias=0.5)],
    Kind.WORDS: [CANARY],
    Kind.RUNS: [IDS],
}
OPTIONS = generation_pb2.GenerationOptions(
    **{
        name: VALUES[option.kind]
        for name, option in option_table.OPTIONS.items()
        if option.needs in (None, Needs.SAMPLING)
        # A request has one constraint at most.
        and name not in CONSTRAINTS - {"json_schema"}
    }
)
GENERATE = generation_pb2.GenerateRequest
STREAM = generation_pb2.GenerateStreamRequest
_WARM = graph_pb2.WarmGraphsRequest()
_WARM.signatures.add(model="demo", kind=2, rows=1, length=64, beams=1)


def _infer(*, raw: bool) -> grpc_service_pb2.ModelInferRequest:
    """A generation over Open Inference, as bytes or as lists of values."""
    request = grpc_service_pb2.ModelInferRequest(model_name="demo", id="7")
    options = b'{"top_k": 3, "stop": ["###"], "logit_bias": {"1": 0.5}}'
    for name, value in (("text_input", CANARY.encode()), ("sampling_parameters", options)):
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1])
        if raw:
            request.raw_input_contents.append(len(value).to_bytes(4, "little") + value)
        else:
            tensor.contents.bytes_contents.append(value)
    request.parameters["max_tokens"].int64_param = 3
    request.outputs.add(name="text_output")
    return request


# Method, whether it answers with a stream, and valid requests. A stream of requests has one of
# them.
SEEDS: list[tuple[str, bool, list[Message]]] = [
    (
        "shaperouter.v1.GenerationService/Generate",
        False,
        [
            GENERATE(model="demo", text=CANARY, options=OPTIONS),
            GENERATE(token_ids=IDS, options=OPTIONS, explain=True),
            GENERATE(decoder_text=CANARY, text=CANARY),
        ],
    ),
    (
        "shaperouter.v1.GenerationService/GenerateStream",
        True,
        [STREAM(text=CANARY, options=OPTIONS)],
    ),
    ("shaperouter.v1.ModelService/GetModel", False, [model_pb2.GetModelRequest(name="demo")]),
    ("shaperouter.v1.ModelService/ListModels", False, [model_pb2.ListModelsRequest()]),
    ("shaperouter.v1.GraphService/ListGraphs", False, [graph_pb2.ListGraphsRequest(model="demo")]),
    ("shaperouter.v1.GraphService/WarmGraphs", True, [_WARM]),
    ("inference.GRPCInferenceService/ModelInfer", False, [_infer(raw=True), _infer(raw=False)]),
    ("inference.GRPCInferenceService/ModelStreamInfer", True, [_infer(raw=True)]),
    (
        "inference.GRPCInferenceService/ModelConfig",
        False,
        [grpc_service_pb2.ModelConfigRequest(name="demo", version="1")],
    ),
]

# What a request can deserve. INTERNAL and UNKNOWN would be our defects.
DESERVED = {
    StatusCode.OK,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.FAILED_PRECONDITION,
}


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


async def send(channel: aio.Channel, source: random.Random) -> StatusCode:
    """Sends one mutated request and reads its responses to the end."""
    method, streams, requests = source.choice(SEEDS)
    data = mutated(source.choice(requests).SerializeToString(), source)
    metadata = (
        ("x-client-id", str(source.randrange(3))),
        ("traceparent", source.randbytes(9).hex()),
    )
    path = f"/{method}"
    if streams:
        stream = channel.unary_stream(path)(data, metadata=metadata, timeout=5)
        try:
            async for _ in stream:
                pass
        except aio.AioRpcError as error:
            return error.code()
        return await stream.code()
    try:
        await channel.unary_unary(path)(data, metadata=metadata, timeout=5)
    except aio.AioRpcError as error:
        return error.code()
    return StatusCode.OK


async def send_all(service: Service, source: random.Random, count: int) -> set[StatusCode]:
    """Sends requests on several connections at once; returns how they ended."""
    codes: set[StatusCode] = set()

    async def connection() -> None:
        async with aio.insecure_channel(service.address) as channel:
            for _ in range(count // 8):
                codes.add(await send(channel, source))

    await asyncio.gather(*(connection() for _ in range(8)))
    return codes


@pytest.mark.timeout(600)
def test_mutated_requests_are_answered_or_refused(directory: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)

    async def scenario() -> None:
        worker = FakeWorker("w", directory / "w", ["demo"])
        worker.models[0].vocab_size = 8192
        await worker.start()
        await worker.make_first_graphs()
        service = await asyncio.to_thread(
            Service,
            "router",
            f"--listen={LOCAL}",
            f"--metrics-listen={LOCAL}",
            f"--worker={worker.address}",
        )
        try:
            await asyncio.to_thread(service.wait_until_ready)
            process = psutil.Process(service.process.pid)
            # These allocate what a process allocates once: buffers, caches of descriptors, arenas.
            codes = await send_all(service, source, max(200, COUNT // 4))
            before = process.memory_info().rss
            codes |= await send_all(service, source, COUNT)
            after = process.memory_info().rss
            assert codes <= DESERVED, codes - DESERVED
            assert StatusCode.OK in codes
            assert StatusCode.INVALID_ARGUMENT in codes
            assert after - before < 2**24, f"{before} bytes before, {after} after"
            async with aio.insecure_channel(service.address) as channel:
                generate = channel.unary_unary("/shaperouter.v1.GenerationService/Generate")
                with pytest.raises(aio.AioRpcError, match="larger than max"):
                    await generate(GENERATE(text="x" * 5_000_000).SerializeToString())
                await generate(GENERATE(token_ids=IDS).SerializeToString())
            assert not service.events("unexpected exception")
            # An error of parsing names the field, never its content.
            assert CANARY not in str(service.log)
            assert worker.running == 0
        finally:
            await asyncio.to_thread(service.close)
            await worker.kill()

    asyncio.run(scenario())
