"""What an image contains: its size, its Debian packages, and its Python packages and licences."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from images.engine import podman, python

# Runs in the image. Many packages have their licence only among their classifiers.
_LIST = r"""
import importlib.metadata, json
found = []
for each in importlib.metadata.distributions():
    about = each.metadata
    licences = [about["License-Expression"]] if about["License-Expression"] else [
        c.rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if c.startswith("License")
    ] or [(about["License"] or "unknown").strip().splitlines()[0][:60]]
    found.append((about["Name"], each.version, ", ".join(licences)))
debian = []
for block in open("/var/lib/dpkg/status", encoding="utf-8").read().split("\n\n"):
    fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[:40])
    if fields.get("Status", "").endswith(" installed"):
        debian.append((fields["Package"], fields["Version"]))
print(json.dumps({"python": found, "debian": debian}))
"""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What an image contains.

    Attributes:
        size: Size of its files, in bytes.
        above_base: Size without the base, in bytes.
        python: Name, version and licence of each Python package of the program.
        debian: Name and version of each Debian package, all of the base.
    """

    size: int
    above_base: int
    python: list[tuple[str, str, str]]
    debian: list[tuple[str, str]]

    @property
    def table(self) -> str:
        """All packages as tab-separated lines: kind, name, version, licence."""
        rows = [("python", *row) for row in sorted(self.python, key=lambda row: row[0].lower())]
        rows += [
            ("debian", *row, f"/usr/share/doc/{row[0]}/copyright") for row in sorted(self.debian)
        ]
        return "".join(
            "\t".join(row) + "\n" for row in [("kind", "name", "version", "licence"), *rows]
        )


def contents_of(image: str, base: str) -> Contents:
    """Lists what an image contains."""
    listed = python(image, _LIST)
    size = _size(image)
    return Contents(
        size=size,
        above_base=size - _size(base),
        python=[(row[0], row[1], row[2]) for row in listed["python"]],
        debian=[(row[0], row[1]) for row in listed["debian"]],
    )


def unlike_lock(installed: Iterable[tuple[str, str, str]], lock: str) -> Mapping[str, str]:
    """Compares what is installed with a lock, beside the two distributions of this repository.

    Args:
        installed: Name, version and licence of each package.
        lock: Text of the lock.

    Returns:
        What is wrong, by the package's name.
    """
    locked = {
        _normal(name): version for name, version in re.findall(r"^(\S+)==(\S+)", lock, re.MULTILINE)
    }
    found = {_normal(name): version for name, version, _ in installed}
    ours = {"shaperouter", "shaperouter-service"}
    wrong = dict.fromkeys(locked.keys() - found.keys(), "is missing")
    wrong |= dict.fromkeys(found.keys() - locked.keys() - ours, "is not locked")
    wrong |= {
        name: f"is {found[name]}, locked is {version}"
        for name, version in locked.items()
        if found.get(name, version) != version
    }
    return wrong


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _size(image: str) -> int:
    return int(podman("image", "inspect", "--format={{.Size}}", image))


def write(contents: Contents, target: Path) -> None:
    """Writes the table of packages."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(contents.table, encoding="utf-8")
