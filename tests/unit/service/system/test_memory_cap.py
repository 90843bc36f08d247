"""The cap on memory: a size, or a share of the container's limit."""

import click
import pytest

from shaperouter_service.system.memory_cap import MemoryCap


@pytest.fixture
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shaperouter_service.system.memory_cap.memory_limit", lambda: request.param)


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
def test_a_share_without_a_limit_is_no_cap() -> None:
    assert MemoryCap.parse("70%").bytes_for(1) == 0


@pytest.mark.parametrize("text", ["70%", "0.5%", "4000"])
def test_a_cap_reads_as_it_is_written(text: str) -> None:
    assert str(MemoryCap.parse(text)) == text


@pytest.mark.parametrize("text", ["0%", "101%"])
def test_a_share_must_be_of_the_whole(text: str) -> None:
    with pytest.raises(click.BadParameter, match="above 0% and at most 100%") as refused:
        MemoryCap.parse(text)
    assert repr(text) in str(refused.value)


def test_what_is_neither_is_refused_with_the_value() -> None:
    with pytest.raises(click.BadParameter, match="'much'"):
        MemoryCap.parse("much")
