"""Sizes, and MemoryCap: a size, or a share of the container's limit."""

import click
import pytest

from shaperouter_service.system.sizes import MemoryCap, format_size, parse_size


@pytest.fixture
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shaperouter_service.system.sizes.memory_limit", lambda: request.param)


@pytest.mark.parametrize("limit", [8_000], indirect=True)
@pytest.mark.parametrize(
    ("text", "workers", "cap"),
    [("70%", 1, 5_600), ("70%", 2, 2_800), ("100 %", 4, 2_000), ("3kB", 2, 3_000), ("0", 2, 0)],
)
@pytest.mark.usefixtures("limit")
def test_a_share_is_divided_among_workers_and_a_size_is_not(
    text: str, workers: int, cap: int
) -> None:
    assert MemoryCap.parse(text).bytes_for(workers) == cap


@pytest.mark.parametrize("limit", [None], indirect=True)
@pytest.mark.usefixtures("limit")
def test_a_share_of_an_unlimited_container_is_no_cap() -> None:
    assert MemoryCap.parse("70%").bytes_for(1) == 0


@pytest.mark.parametrize("text", ["70%", "0.5%", "4000"])
def test_a_caps_text_parses_to_the_same_cap(text: str) -> None:
    assert str(MemoryCap.parse(text)) == text


@pytest.mark.parametrize("text", ["0%", "101%"])
def test_a_share_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="above 0% and at most 100%") as refused:
        MemoryCap.parse(text)
    assert repr(text) in str(refused.value)


def test_text_that_is_no_cap_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="'much'"):
        MemoryCap.parse("much")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("123", 123),
        ("5B", 5),
        ("1.5kB", 1500),
        ("500MB", 500_000_000),
        ("10 GB", 10**10),
        ("1g", 10**9),
        ("2GiB", 2 * 1024**3),
    ],
)
def test_sizes_are_read_with_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1XB", "1 iB", "ten"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be a number of bytes") as refused:
        parse_size(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (12.34e6, "12.3 MB"), (10**10, "10.0 GB")],
)
def test_sizes_are_written_with_units(size: float, text: str) -> None:
    assert format_size(size) == text
