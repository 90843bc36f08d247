"""Watching and warming graphs, and the short form of their signatures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from harness.waiting import TIMEOUT
from shaperouter import (
    CallCancelledError,
    Client,
    DeadlineError,
    GraphKind,
    GraphState,
    InvalidArgumentError,
    Signature,
    UnavailableError,
)
from shaperouter.v1 import graph_pb2, signature_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter

DECODE = Signature(model="demo", kind=GraphKind.DECODE, rows=4, length=256)


# The short form.


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        (DECODE, "demo decode 4x256"),
        (
            Signature(model="gpt2-xl.1", kind=GraphKind.DECODE, rows=1, length=64, beams=4),
            "gpt2-xl.1 decode 1x64 beams 4",
        ),
        (Signature(model="m", kind=GraphKind.PREFILL, rows=2, length=16), "m prefill 2x16"),
        (Signature(model="m", kind=GraphKind.ENCODE, rows=2, length=16), "m encode 2x16"),
        (
            Signature(model="f", kind=GraphKind.CALL, rows=8, length=128, further=(64, 3)),
            "f call 8x128x64x3",
        ),
        (
            Signature(model="f", kind=GraphKind.CALL, rows=8, length=128, exact=(3, 5)),
            "f call 8x128 exact 3x5",
        ),
    ],
)
def test_signature_parses_its_own_short_form(signature: Signature, text: str) -> None:
    assert str(signature) == text
    assert Signature.parse(text) == signature
    assert Signature.parse(f"  {text.replace(' ', '   ')}\t") == signature


def test_a_shape_is_the_short_form_without_the_model() -> None:
    assert DECODE.shape == "decode 4x256"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "must read MODEL KIND ROWSxLENGTH, then 'beams N' with beam search, such as"),
        ("decode 4x256", "must read MODEL KIND ROWSxLENGTH"),
        ("demo decode 4x256 beams", "must read MODEL KIND ROWSxLENGTH"),
        (
            "demo transcribe 4x256",
            "the kind must be encode, prefill, score, decode, align or call, got 'transcribe'",
        ),
        (
            "demo unknown 4x256",
            "the kind must be encode, prefill, score, decode, align or call, got 'unknown'",
        ),
        ("demo decode 4*256", "the size must read ROWSxLENGTH, such as 4x256, got '4*256'"),
        ("demo decode -4x256", "the size must read ROWSxLENGTH, such as 4x256, got '-4x256'"),
        ("demo decode 4x9999999999", "the size must read ROWSxLENGTH"),
        ("demo decode 4x256 rows 4", "what follows the size must read 'beams N', got 'rows 4'"),
        ("demo decode 4x256 beams ²", "what follows the size must read 'beams N', got 'beams ²'"),
    ],
)
def test_error_names_the_wrong_part_of_a_short_form(text: str, wrong: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Signature.parse(text, field="signatures[2]")
    assert str(caught.value).startswith(f"signatures[2]: {wrong}")
    assert repr(text) in str(caught.value)
    assert caught.value.violations[0].field == "signatures[2]"


# What is sent.


def test_watching_sends_its_filters(fake: FakeShaperouter, client: Client) -> None:
    list(client.watch_graphs("demo", include_cold=True))
    assert fake.requests == [graph_pb2.WatchGraphsRequest(model="demo", include_cold=True)]


def test_signatures_are_sent_as_values_and_in_their_short_form(
    fake: FakeShaperouter, client: Client
) -> None:
    list(client.warm_graphs([DECODE, "demo prefill 1x16"], workers=["a", "b"]))
    list(client.warm_graphs(iter([DECODE]), all_workers=True))
    decode = fake.signature(signature_pb2.GRAPH_KIND_DECODE, 4, 256)
    prefill = fake.signature(signature_pb2.GRAPH_KIND_PREFILL, 1, 16)
    assert fake.requests == [
        graph_pb2.WarmGraphsRequest(signatures=[decode, prefill], workers=["a", "b"]),
        graph_pb2.WarmGraphsRequest(signatures=[decode], all_workers=True),
    ]


@pytest.mark.parametrize(
    "name", [name for name, number in signature_pb2.GraphKind.items() if number]
)
def test_every_kind_of_graph_can_be_warmed(
    fake: FakeShaperouter, client: Client, name: str
) -> None:
    kind = name.removeprefix("GRAPH_KIND_").lower()
    list(client.warm_graphs([f"whisper {kind} 1x448"]))
    (request,) = fake.requests
    (sent,) = request.signatures
    assert sent.kind == signature_pb2.GraphKind.Value(name)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"signatures": "demo decode 4x256"},
            "signatures: must be a list of signatures, got 'demo",
        ),
        ({"signatures": DECODE}, "signatures: must be a list of signatures, got Signature"),
        (
            {"signatures": [DECODE, 5]},
            "signatures[1]: must be a Signature or its short form, got 5",
        ),
        ({"signatures": [DECODE, "demo"]}, "signatures[1]: must read MODEL KIND ROWSxLENGTH"),
        (
            {"signatures": [Signature(model="m", kind=GraphKind.UNKNOWN, rows=1, length=1)]},
            "signatures[0].kind: must be encode, prefill, score, decode, align or call, got",
        ),
        (
            {"signatures": [Signature(model="m", kind=GraphKind.DECODE, rows=2**31, length=1)]},
            "signatures[0].rows: must fit a signed 32-bit integer, got 2147483648",
        ),
        ({"signatures": [DECODE], "workers": "worker-0"}, "workers: must be a list of names, got"),
        ({"signatures": [DECODE], "workers": [0]}, "workers[0]: must be a str, got 0"),
        ({"signatures": [DECODE], "all_workers": 1}, "all_workers: must be True or False, got 1"),
        ({"signatures": [DECODE], "timeout": math.nan}, "timeout: must be a number of seconds"),
    ],
)
def test_unsendable_values_are_refused_with_their_field(
    fake: FakeShaperouter, client: Client, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.warm_graphs(**arguments)
    assert str(caught.value).startswith(told)
    assert not fake.requests


def test_explain_must_be_a_flag(fake: FakeShaperouter, client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="explain: must be True or False, got 'yes'"):
        client.generate("x", explain="yes")  # type: ignore[arg-type]  # the mistake
    assert not fake.requests


def test_explain_is_sent(fake: FakeShaperouter, client: Client) -> None:
    client.generate("x", explain=True)
    list(client.stream("x", explain=True))
    client.generate("x")
    found = [request.explain for request in fake.requests]
    assert found == [True, True, False]


# What comes back.


def test_each_list_is_a_snapshot(client: Client) -> None:
    watched = list(client.watch_graphs())
    warmed = list(client.warm_graphs([DECODE]))
    for told in (watched, warmed):
        assert [[graph.state for graph in graphs] for graphs in told] == [
            [GraphState.TRACING],
            [GraphState.READY],
        ]
        assert {graph.signature for graphs in told for graph in graphs} == {DECODE}


def test_lists_arrive_as_soon_as_the_service_sends_them(
    fake: FakeShaperouter, client: Client
) -> None:
    fake.graph_updates.insert(1, fake.hold)
    stream = client.watch_graphs()
    assert next(stream)[0].state is GraphState.TRACING
    fake.released.set()
    assert next(stream)[0].state is GraphState.READY
    with pytest.raises(StopIteration):
        next(stream)


def test_leaving_the_block_early_cancels_the_call(fake: FakeShaperouter, client: Client) -> None:
    fake.graph_updates.insert(1, fake.hold)
    with client.watch_graphs() as stream:
        next(stream)
    assert fake.cancelled.wait(TIMEOUT)
    with pytest.raises(CallCancelledError):
        next(stream)


def test_errors_are_raised_while_iterating(fake: FakeShaperouter, client: Client) -> None:
    fake.graph_updates[1] = fake.fail(grpc.StatusCode.UNAVAILABLE, "the service is being stopped")
    stream = client.warm_graphs([DECODE])
    next(stream)
    with pytest.raises(UnavailableError, match="being stopped"):
        next(stream)


def test_the_clients_timeout_does_not_end_a_stream_of_graphs(fake: FakeShaperouter) -> None:
    deadlines = []
    fake.graph_updates.insert(0, lambda context: deadlines.append(context.time_remaining()))
    with Client(fake.address, timeout=5.0) as client:
        list(client.watch_graphs())
        list(client.warm_graphs([DECODE]))
    assert all(deadline is None or deadline > 1e6 for deadline in deadlines)
    assert len(deadlines) == 2


def test_its_own_timeout_ends_a_stream_of_graphs(fake: FakeShaperouter, client: Client) -> None:
    fake.graph_updates.insert(1, fake.hold)
    stream = client.watch_graphs(timeout=5)
    next(stream)
    with pytest.raises(DeadlineError, match=r"5 s"):
        next(stream)


@pytest.mark.usefixtures("fast_retries")
def test_streams_of_graphs_are_retried_only_until_their_first_answer(fake: FakeShaperouter) -> None:
    refuse = fake.fail(grpc.StatusCode.UNAVAILABLE, "shutting down")
    fake.graph_updates.insert(0, lambda context: len(fake.requests) % 2 and refuse(context))
    fake.graph_updates.append(refuse)
    with Client(fake.address, timeout=TIMEOUT, retries=5) as client:
        # One after the other: the service counts the requests as they arrive.
        for start in (client.watch_graphs, lambda: client.warm_graphs([DECODE])):
            with pytest.raises(UnavailableError, match="shutting down"):
                list(start())
    assert len(fake.requests) == 4
