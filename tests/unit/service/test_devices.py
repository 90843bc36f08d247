"""What there is to compute with."""

from pathlib import Path

import pytest

from shaperouter_service.devices import visible_gpus


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A machine with two GPUs, and what else the driver puts beside them."""
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


def test_gpus_are_those_the_driver_shows(devices: Path) -> None:
    assert visible_gpus({}, devices) == ["0", "1"]


def test_a_machine_without_a_driver_has_none(tmp_path: Path) -> None:
    assert visible_gpus({}, tmp_path) == []


@pytest.mark.parametrize(
    ("variable", "gpus"),
    [("", []), ("-1", []), ("1", ["1"]), ("3, GPU-7f", ["3", "GPU-7f"]), ("0,-1,1", ["0"])],
)
def test_what_cuda_is_told_goes_before_what_there_is(
    devices: Path, variable: str, gpus: list[str]
) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": variable}, devices) == gpus
