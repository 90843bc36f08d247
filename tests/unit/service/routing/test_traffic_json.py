"""The text form of traffic is read back unchanged, or refused."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.traffic import MODEL, TODAY, decode, prefill, traffics
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.traffic import Traffic
from shaperouter_service.routing.traffic_json import (
    TrafficFormatError,
    _checksum,
    from_json,
    to_json,
)


def _text() -> str:
    traffic = Traffic(
        model=MODEL, ladders=Ladders.default(max_length=128, slots=2), as_of=TODAY, seconds=30.5
    )
    traffic.add_prompt(12)
    traffic.add_run(4, 60)
    traffic.of(prefill(1, 16)).asked += 1
    traffic.of(decode(1, 64, beams=4)).device_seconds += 0.25
    return to_json(traffic)


TEXT = _text()


@given(traffic=traffics())
def test_traffic_is_read_as_it_was_written(traffic: Traffic) -> None:
    assert from_json(to_json(traffic)) == traffic


@given(traffic=traffics())
def test_the_same_traffic_has_the_same_text(traffic: Traffic) -> None:
    assert to_json(from_json(to_json(traffic))) == to_json(traffic)


def test_traffic_from_before_sizes_of_calls_were_counted_has_none() -> None:
    content = json.loads(TEXT)
    del content["traffic"]["sizes"]
    content["checksum"] = _checksum(content["traffic"])
    assert from_json(json.dumps(content)) == from_json(TEXT)


def test_traffic_from_before_there_were_encoders_has_no_sources() -> None:
    content = json.loads(TEXT)
    del content["traffic"]["sources"], content["traffic"]["ladders"]["encoder"]
    content["checksum"] = _checksum(content["traffic"])
    assert from_json(json.dumps(content)) == from_json(TEXT)


@given(length=st.integers(0, len(TEXT) - 1))
def test_a_text_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(TrafficFormatError):
        from_json(TEXT[:length])


@given(place=st.integers(0, len(TEXT) - 1), flipped=st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_nothing(place: int, flipped: int) -> None:
    damaged = bytearray(TEXT.encode())
    damaged[place] ^= flipped
    with contextlib.suppress(TrafficFormatError):
        # Between values, a blank may have become another.
        assert from_json(bytes(damaged)) == from_json(TEXT)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused_by_name(version: Any) -> None:
    content = json.loads(TEXT) | {"version": version}
    with pytest.raises(TrafficFormatError, match=f"version must be 1, got {version!r}"):
        from_json(json.dumps(content))


def test_a_changed_count_is_refused() -> None:
    with pytest.raises(TrafficFormatError, match="checksum"):
        from_json(TEXT.replace("[12, 1.0]", "[12, 9.0]"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "1",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 1, "checksum": "", "traffic": {}}',
        "not JSON",
        b"\xff\xfe\x00",
        "[" * 100_000,
    ],
)
def test_what_is_no_traffic_is_refused(text: str | bytes) -> None:
    with pytest.raises(TrafficFormatError):
        from_json(text)


def test_a_record_without_a_part_is_refused_whatever_its_checksum_says() -> None:
    record = json.loads(TEXT)["traffic"]
    del record["prompts"]
    checksum = _checksum(record)
    with pytest.raises(TrafficFormatError, match="prompts"):
        from_json(json.dumps({"version": 1, "checksum": checksum, "traffic": record}))
