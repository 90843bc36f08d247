"""Models must fit into the memory of the device that computes with them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from shaperouter_service.models import DeviceKind
from shaperouter_service.system.available_memory import available_memory
from shaperouter_service.worker import device_memory
from shaperouter_service.worker.device_memory import device_memory_left

NATIVE = Path(__file__).parents[1] / "native"
ASK = """
import ctypes
from shaperouter_service.system.gpu_memory import gpu_memory
print(gpu_memory())
ctypes.c_bool.in_dll(ctypes.CDLL("libcuda.so.1"), "stand_in_refuses").value = True
print(gpu_memory())
"""


def test_the_driver_tells_the_memory_of_a_gpu(tmp_path: Path) -> None:
    driver = tmp_path / "libcuda.so.1"
    source = NATIVE / "cuda_stand_in.cc"
    subprocess.run(["c++", "-std=c++17", "-shared", "-fPIC", source, "-o", driver], check=True)
    asked = subprocess.run(
        [sys.executable, "-c", ASK],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ
        | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert asked.stdout.split() == ["3000000000", "None"]


def test_on_a_cpu_models_take_the_memory_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "gpu_memory", lambda: pytest.fail("there is no GPU"))
    assert device_memory_left() == pytest.approx(available_memory(), rel=0.5)


@pytest.mark.parametrize(("size", "left"), [(3_000, 2_000), (None, sys.maxsize)])
def test_on_a_gpu_models_take_what_is_left_of_its_memory(
    monkeypatch: pytest.MonkeyPatch, size: int | None, left: int
) -> None:
    monkeypatch.setattr(DeviceKind, "present", lambda: DeviceKind.GPU)
    monkeypatch.setattr(device_memory, "gpu_memory", lambda: size)
    monkeypatch.setattr(
        tf.config.experimental, "get_memory_info", lambda device: {"current": 1_000, "peak": 1_500}
    )
    assert device_memory_left() == left
