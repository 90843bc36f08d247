"""Packages as sources of training data: read as archives, never installed or imported."""

from __future__ import annotations

from pathlib import Path


def wheel_of(requirement: str, folder: Path) -> Path:
    """The wheel of a `name==version` line in a folder of wheels.

    Raises:
        FileNotFoundError: there is none.
    """
    name, version = requirement.split("==")
    stem = f"{name.replace('-', '_')}-{version}-".lower()
    for path in sorted(folder.glob("*.whl")):
        if path.name.lower().startswith(stem):
            return path
    raise FileNotFoundError(f"{folder} has no wheel for {requirement}")


def wheels_of(packages: Path, folder: Path) -> list[Path]:
    """The wheels of all lines of a `packages.txt`, in its order.

    Raises:
        FileNotFoundError: one is missing.
    """
    lines = packages.read_text().splitlines()
    return [wheel_of(line, folder) for line in lines if line and not line.startswith("#")]
