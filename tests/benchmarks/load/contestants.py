"""The contestants, with their environments and servers."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant, as the conductor knows it.

    Attributes:
        name: Name in the JSON file and on the command line.
        label: Label in tables and plots.
        environment: Folder of its environment, relative to the repository.
        module: Its module.
        streams: Whether it streams tokens.
        converted: Whether it loads the checkpoint in CTranslate2's format.
    """

    name: str
    label: str
    environment: str
    module: str
    streams: bool = False
    converted: bool = False


SHAPEROUTER = Entry(
    name="shaperouter",
    label="Shaperouter",
    environment=".venv",
    module="load.server_shaperouter",
    streams=True,
)
CTRANSLATE2 = Entry(
    name="ctranslate2",
    label="CTranslate2 server",
    environment=".venvs/bench-ct2",
    module="load.server_ctranslate2",
    converted=True,
)
TRANSFORMERS = Entry(
    name="transformers-tf-xla",
    label="Transformers server",
    environment=".venvs/bench-tf",
    module="load.server_transformers_tf",
)

ENTRIES: Sequence[Entry] = (SHAPEROUTER, CTRANSLATE2, TRANSFORMERS)
PEERS: Sequence[Entry] = (CTRANSLATE2, TRANSFORMERS)
