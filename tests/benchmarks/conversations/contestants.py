"""The contestants, with their environments and servers."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from load.contestants import Entry

from common.paths import WORK

from .script import system_prompt

# Graphs of both services. It outlives a run, so that the next one compiles nothing.
GRAPHS = WORK / "conversations-graphs"


class Door(StrEnum):
    """How callers talk to a server."""

    GRPC = "grpc"
    HTTP = "http"  # llama.cpp's own


@dataclass(frozen=True, kw_only=True)
class Talker:
    """A contestant.

    Attributes:
        entry: Its environment and module.
        door: How callers talk to it.
        options: Options of its server.
    """

    entry: Entry
    door: Door = Door.GRPC
    options: Sequence[str] = ()


def _ours(name: str, label: str, *options: str) -> Talker:
    return Talker(
        entry=Entry(name=name, label=label, environment=".venv", module="load.server_shaperouter"),
        options=("--dtype=int8", f"--compile-cache={GRAPHS}", *options),
    )


OURS = _ours("shaperouter", "Shaperouter")
UNCACHED = _ours("shaperouter-uncached", "Shaperouter, no prefix cache", "--prefix-cache-memory=0")
LLAMACPP = Talker(
    entry=Entry(
        name="llamacpp",
        label="llama.cpp's server",
        environment=".venvs/bench-llamaserver",
        module="conversations.server_llamacpp",
    ),
    door=Door.HTTP,
)
CTRANSLATE2 = Talker(
    entry=Entry(
        name="ctranslate2",
        label="CTranslate2 server",
        environment=".venvs/bench-ct2",
        module="conversations.server_ctranslate2",
        converted=True,
    ),
    options=(",".join(map(str, system_prompt())),),
)
TALKERS: Sequence[Talker] = (OURS, UNCACHED, LLAMACPP, CTRANSLATE2)


@dataclass(frozen=True, kw_only=True)
class Gguf:
    """llama.cpp's file of a checkpoint, which has Q8_0 weights."""

    checkpoint: Path

    @property
    def converted(self) -> Path:
        """The same."""
        return self.checkpoint
