"""One version of skew: callers and workers of the version before, as docs/versions.md promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2

from harness import fake_worker
from harness.holding import TOKENS, busy, hold_after
from harness.older import VERSIONS, Older, definitions
from harness.router import deltas, read_events
from shaperouter.v1 import (
    generation_pb2,
    graph_pb2,
    inference_pb2,
    model_pb2,
    signature_pb2,
    transcription_pb2,
    worker_pb2,
)
from shaperouter_service import __version__
from shaperouter_service.roles import router as router_role
from shaperouter_service.rpc.server import make_server

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

# The newest version that was released, or that is about to be.
OLD = VERSIONS[-1]
NOW = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        generation_pb2,
        graph_pb2,
        inference_pb2,
        model_pb2,
        signature_pb2,
        transcription_pb2,
        worker_pb2,
    )
}
FILES = [file for file in definitions(OLD).file if file.package == "shaperouter.v1"]


def now(name: str) -> descriptor_pb2.FileDescriptorProto:
    found = descriptor_pb2.FileDescriptorProto()
    NOW[name].CopyToProto(found)
    return found


def by_name(values: Any) -> Mapping[str, Any]:
    return {each.name: each for each in values}


def is_reserved(number: int, ranges: Any) -> bool:
    return any(each.start <= number < each.end for each in ranges)


def assert_message(old: Any, new: Any) -> None:
    """What either side sends of it, the other one reads as it was meant."""
    numbers = {field.number: field for field in new.field}
    for field in old.field:
        if field.number not in numbers:
            # Left out on purpose, and its number is never used again.
            assert is_reserved(field.number, new.reserved_range), (old.name, field.name)
            continue
        other = numbers[field.number]
        for part in ("name", "type", "label", "type_name", "proto3_optional"):
            assert getattr(field, part) == getattr(other, part), (old.name, field.name, part)
        # Groups by name, since the order of declaration means nothing.
        groups = [
            message.oneof_decl[each.oneof_index].name if each.HasField("oneof_index") else None
            for message, each in ((old, field), (new, other))
        ]
        assert groups[0] == groups[1], (old.name, field.name)
    nested = by_name(new.nested_type)
    for each in old.nested_type:
        assert_message(each, nested[each.name])
    for each in old.enum_type:
        assert_enum(each, by_name(new.enum_type)[each.name])


def assert_enum(old: Any, new: Any) -> None:
    values = {each.name: each.number for each in new.value}
    for value in old.value:
        assert values.get(value.name) == value.number, (old.name, value.name)


def test_the_version_to_be_released_or_the_one_before_is_kept() -> None:
    (major, minor, _), (old_major, old_minor, _) = (
        [int(part) for part in version.split(".")] for version in (str(__version__), OLD)
    )
    assert (old_major, old_minor) in {(major, minor), (major, minor - 1), (major - 1, old_minor)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.rpartition("/")[2])
def test_messages_of_one_version_are_those_of_the_other(
    file: descriptor_pb2.FileDescriptorProto,
) -> None:
    new = now(file.name)
    for message in file.message_type:
        assert_message(message, by_name(new.message_type)[message.name])
    for enum in file.enum_type:
        assert_enum(enum, by_name(new.enum_type)[enum.name])
    for service in file.service:
        methods = by_name(by_name(new.service)[service.name].method)
        for method in service.method:
            other = methods[method.name]
            for part in ("input_type", "output_type", "client_streaming", "server_streaming"):
                assert getattr(method, part) == getattr(other, part), (service.name, method.name)


@pytest.fixture(params=["callers", "workers"])
def older(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Older]:
    """A router whose callers, or whose workers, are of the version before."""
    older = Older(OLD)

    def make(*arguments: Any, outer: Any = (), **settings: Any) -> Any:
        return make_server(*arguments, outer=[*outer, older], **settings)

    module = router_role if request.param == "callers" else fake_worker
    monkeypatch.setattr(module, "make_server", make)
    yield older
    assert older.messages > 0


def test_generations_are_answered(play: Play, older: Older) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script = [worker.tokens(*TOKENS), worker.completion()]
        answer = await router.generate()
        assert answer.sequences[0].token_ids == TOKENS
        events, end = await read_events(router.stream())
        assert [token for each in deltas(events) for token in each.token_ids] == TOKENS
        assert end.completion.worker in {worker.name for worker in workers}

    play(scenario, workers=2)


def test_a_stop_string_ends_a_generation(
    play: Play, encode: Callable[[str], Sequence[int]], older: Older
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        read = worker_pb2.InputUsage(cached_prompt_tokens=32)
        worker.script = [worker.tokens(*encode("an end"), input_usage=read), worker.hold]
        stopping = generation_pb2.GenerationOptions(stop=["end"])
        answer = await router.generate(options=stopping)
        assert answer.sequences[0].finish_reason == generation_pb2.FINISH_REASON_STOP
        # Workers of 0.1.0 say only at the end what they read.
        assert answer.completion.usage.cached_prompt_tokens in (0, 32)

    play(scenario)


def test_a_generation_survives_its_worker(play: Play, older: Older) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        first = await call.read()
        lost, [other] = busy(*workers)
        other.released.set()
        await lost.kill()
        events, _ = await read_events(call)
        assert [token for d in deltas([first, *events]) for token in d.token_ids] == TOKENS

    play(scenario, workers=2)


def test_models_and_graphs_are_listed(play: Play, older: Older) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        models = (await router.models.ListModels(model_pb2.ListModelsRequest())).models
        assert [model.name for model in models] == ["tiny"]
        assert models[0].ready_workers == 1
        worker.graphs = [worker.graph(worker.signature(16))]
        await worker.change()
        graphs = (await router.graphs.ListGraphs(graph_pb2.ListGraphsRequest())).graphs
        assert [graph.signature for graph in graphs] in ([worker.signature(16)], [])

    play(scenario)
