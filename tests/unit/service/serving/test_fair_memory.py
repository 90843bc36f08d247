"""The memory of calls is bounded, and shared fairly between clients."""

from __future__ import annotations

import pytest

from shaperouter_service.errors import InvalidRequestError, RecordingMemoryError
from shaperouter_service.serving.fair_memory import FairMemory

LIMIT = 1200


def test_one_client_has_half_and_others_have_room() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with memory.share("a") as first, memory.share("a") as second, memory.share("b") as other:
        first.resize(400)
        with pytest.raises(RecordingMemoryError, match="limit 600 bytes of one client"):
            second.resize(201)
        second.resize(200)
        with pytest.raises(RecordingMemoryError, match="limit 400 bytes of one client"):
            other.resize(401)
        other.resize(400)


def test_all_clients_together_have_no_more_than_there_is() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with memory.share("a") as first, memory.share("b") as second, memory.share("c") as third:
        first.resize(600)
        second.resize(400)
        with pytest.raises(RecordingMemoryError, match="limit 1200 bytes;"):
            third.resize(201)
        third.resize(200)


def test_another_client_ends_nothing_that_is_being_transcribed() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with memory.share("a") as begun, memory.share("a") as unread, memory.share("b") as other:
        begun.resize(250)
        unread.resize(200)
        other.resize(100)
        begun.resize(300, begun=True)
        with pytest.raises(RecordingMemoryError, match="limit 400 bytes of one client"):
            unread.resize(201)
        with pytest.raises(RecordingMemoryError, match="limit 600 bytes of one client"):
            begun.resize(401, begun=True)


def test_a_recording_begins_within_its_clients_share() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with memory.share("a") as first, memory.share("b") as second:
        first.resize(100)
        with pytest.raises(RecordingMemoryError, match="limit 400 bytes of one client"):
            second.resize(401, begun=True)


def test_what_is_freed_or_ends_is_there_for_others() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with memory.share("a") as first, memory.share("a") as second:
        first.resize(600)
        first.resize(100)
        second.resize(500)
    with memory.share("a") as third:
        third.resize(600)


def test_a_recording_that_never_fits_is_invalid() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with (
        memory.share("a") as share,
        pytest.raises(InvalidRequestError, match=r"at most 600 bytes of memory, .* got 601"),
    ):
        share.resize(601)


def test_a_refusal_changes_nothing() -> None:
    memory = FairMemory(LIMIT, full=RecordingMemoryError)
    with memory.share("a") as first, memory.share("a") as second:
        first.resize(500)
        with pytest.raises(RecordingMemoryError):
            second.resize(400)
        second.resize(100)
