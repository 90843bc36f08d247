"""Keys: all that compiled graphs of a model depend on, besides their signatures."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CacheKey:
    """Where graphs of a model are found: graphs of equal keys are exchangeable.

    Attributes:
        label: Begins the directory's name, for people.
        parts: What the graphs depend on, as JSON.
    """

    label: str
    parts: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Of the parts: 16 hexadecimal digits."""
        text = json.dumps(self.parts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """Of the directory."""
        return f"{self.label}-{self.digest}"

    @staticmethod
    def label_of(directory: str) -> str:
        """The label that a directory's name begins with."""
        return directory.rpartition("-")[0]

    @staticmethod
    def names(directory: str) -> bool:
        """Tells whether a directory is named like one of ours."""
        return re.fullmatch(r"[\w.-]+-[0-9a-f]{16}", directory) is not None
