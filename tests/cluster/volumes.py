"""What is mounted in pods: directories of this machine, and secrets that change under them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path


class Secret:
    """A secret, as kubelets lay it out: every file changes in the same moment."""

    def __init__(self, directory: Path) -> None:
        """Stores the volume in a directory, which is created."""
        self._directory = directory
        directory.mkdir(parents=True)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Puts these files in the place of those that were there."""
        content = Path(tempfile.mkdtemp(prefix="..", dir=self._directory))
        for name, data in files.items():
            (content / name).write_bytes(data)
        new = self._directory / "..data_tmp"
        new.symlink_to(content.name)
        new.replace(self._directory / "..data")
        for name in files:
            link = self._directory / name
            if not link.is_symlink():
                # Relative, and led through the link that is replaced.
                link.symlink_to(f"..data/{name}")
