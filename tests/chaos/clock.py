"""A clock of the day for one process, which can be set wrong while the process runs."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
# Maximum error in seconds: half a day, in which the certificates stay valid.
_MOST = 12 * 3600


class Clock:
    """The clock of a process.

    Attributes:
        variables: What the process needs in its environment.
    """

    can_be_wrong = shutil.which("cc") is not None

    def __init__(self, directory: Path, name: str) -> None:
        """Makes it right.

        Args:
            directory: For its file, and the library that the process loads.
            name: Name of the process.
        """
        self._file = directory / name
        self.variables: Mapping[str, str] = {}
        self._set(0)
        if self.can_be_wrong:
            library = directory / "clock.so"
            if not library.exists():
                command = ["cc", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library)]
                subprocess.run([*command, "-ldl"], check=True)
            self.variables = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._file)}

    @contextlib.contextmanager
    def wrong(self, seed: int) -> Iterator[None]:
        """Is wrong by up to half a day inside of the context."""
        self._set(random.Random(seed).randint(-_MOST, _MOST))
        try:
            yield
        finally:
            self._set(0)

    def _set(self, seconds: int) -> None:
        content = seconds.to_bytes(8, "little", signed=True)
        # Never shortened: the process has mapped it.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(content)
