"""The messages of a transcription's stream become pieces of a recording."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shaperouter.v1 import transcription_pb2
from shaperouter_service.edge.grpc.transcription import pieces_of
from shaperouter_service.errors import InvalidRequestError

Message = transcription_pb2.TranscribeStreamRequest


def pieces(*messages: Message) -> list[bytes]:
    async def sent() -> AsyncIterator[Message]:
        for message in messages:
            yield message

    async def read() -> list[bytes]:
        return [piece async for piece in pieces_of(sent())]

    return asyncio.run(read())


def test_each_message_is_a_piece() -> None:
    assert pieces(Message(content=b"ab"), Message(content=b""), Message(content=b"c")) == [
        b"ab",
        b"",
        b"c",
    ]


@pytest.mark.parametrize(
    ("message", "got"),
    [(Message(start=transcription_pb2.TranscribeStreamStart()), "start"), (Message(), "nothing")],
)
def test_a_message_without_content_is_refused(message: Message, got: str) -> None:
    error = f"content: must be set in every message except the first, got {got}"
    with pytest.raises(InvalidRequestError, match=error):
        pieces(Message(content=b"ab"), message)
