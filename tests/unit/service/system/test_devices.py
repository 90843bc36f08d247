"""Detection of GPUs and of a container's memory limit."""

from pathlib import Path

import pytest

from shaperouter_service.system.devices import memory_left, memory_limit, visible_gpus


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A machine with two GPUs, and the driver's other device files."""
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


def test_gpus_are_found_by_their_device_files(devices: Path) -> None:
    assert visible_gpus({}, devices) == ["0", "1"]


def test_a_machine_without_a_driver_has_no_gpus(tmp_path: Path) -> None:
    assert visible_gpus({}, tmp_path) == []


@pytest.mark.parametrize(
    ("variable", "gpus"),
    [("", []), ("-1", []), ("1", ["1"]), ("3, GPU-7f", ["3", "GPU-7f"]), ("0,-1,1", ["0"])],
)
def test_cuda_visible_devices_restricts_the_gpus(
    devices: Path, variable: str, gpus: list[str]
) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": variable}, devices) == gpus


GIB = 1024**3
UNLIMITED_V1 = str(2**63 - 4096)


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        pytest.param("0::/", {"memory.max": f"{6 * GIB}"}, 6 * GIB, id="a container"),
        pytest.param("0::/", {"memory.max": "max"}, None, id="a container without a limit"),
        pytest.param("0::/", {}, None, id="no container"),
        pytest.param(
            "0::/pods/pod7/worker",
            {"pods/memory.max": f"{9 * GIB}", "pods/pod7/memory.max": f"{8 * GIB}"},
            8 * GIB,
            id="the lowest of the groups above",
        ),
        pytest.param(
            "4:memory:/pods/pod7\n1:cpu:/other",
            {"memory/pods/pod7/memory.limit_in_bytes": f"{GIB}"},
            GIB,
            id="version 1",
        ),
        pytest.param(
            "4:cpu,memory:/seen/from/outside",
            {"memory/memory.limit_in_bytes": f"{2 * GIB}"},
            2 * GIB,
            id="version 1 in a container",
        ),
        pytest.param(
            "4:memory:/\n0::/",
            {"memory/memory.limit_in_bytes": UNLIMITED_V1},
            None,
            id="version 1 without a limit",
        ),
    ],
)
def test_the_memory_limit_is_the_lowest_of_the_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    mount = tmp_path / "cgroup"
    for name, content in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(content + "\n")
    # What lies above the mount is not a control group.
    (tmp_path / "memory.max").write_text("1\n")
    own = tmp_path / "own"
    own.write_text(groups + "\n")
    assert memory_limit(own, mount) == limit


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        pytest.param(
            "0::/",
            {
                "memory.max": "1000",
                "memory.current": "700",
                "memory.stat": "anon 400\nfile 300\nshmem 120\ninactive_file 80\nactive_file 100",
            },
            480,
            id="cached files count as free, shared memory does not",
        ),
        pytest.param(
            "4:memory:/pod",
            {
                "memory/pod/memory.limit_in_bytes": "1000",
                "memory/pod/memory.usage_in_bytes": "900",
                "memory/pod/memory.stat": "inactive_file 1\ntotal_inactive_file 200",
            },
            300,
            id="version 1",
        ),
        pytest.param(
            "0::/pods/pod7",
            {
                "pods/memory.max": "2000",
                "pods/memory.current": "1990",
                "pods/memory.stat": "anon 1990",
                "pods/pod7/memory.max": "1000",
                "pods/pod7/memory.current": "500",
                "pods/pod7/memory.stat": "anon 500",
            },
            10,
            id="the lowest of the groups above",
        ),
        pytest.param(
            "0::/", {"memory.max": "max", "memory.current": "7"}, None, id="without a limit"
        ),
        pytest.param("0::/", {"memory.max": "1000"}, None, id="without the memory in use"),
    ],
)
def test_the_memory_left_is_the_limit_less_the_memory_in_use(
    tmp_path: Path, groups: str, files: dict[str, str], left: int | None
) -> None:
    mount = tmp_path / "cgroup"
    for name, content in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(content + "\n")
    own = tmp_path / "own"
    own.write_text(groups + "\n")
    assert memory_left(own, mount) == left


def test_a_system_without_control_groups_has_no_memory_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none", tmp_path) is None
    assert memory_left(tmp_path / "none", tmp_path) is None
