"""The contestants, their environments and their workloads."""

from collections.abc import Sequence
from dataclasses import dataclass

from .workloads import Kind

# As many requests as the widest workload sends at once, and as the service runs by default.
SLOTS = 8


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant, as the conductor knows it.

    Attributes:
        name: In the JSON file and on the command line.
        label: In tables and plots.
        environment: Folder of its environment, from the repository's root.
        module: Its module in this package.
        options: Its own arguments.
        converted: It loads the checkpoint as CTranslate2's converter wrote it.
        kinds: The workloads it takes part in.
        every: It takes part in each so many-th round, from the first on.
    """

    name: str
    label: str
    environment: str
    module: str
    options: Sequence[str] = ()
    converted: bool = False
    kinds: Sequence[Kind] = tuple(Kind)
    every: int = 1


ENGINE = Entry(
    name="shaperouter",
    label="Shaperouter, engine",
    environment=".venv",
    module="peer_shaperouter",
    options=[f"--slots={SLOTS}"],
)
# With XLA's own products, as where there was no compiler.
ENGINE_XLA = Entry(
    name="shaperouter-xla",
    label="Shaperouter, engine without kernels",
    environment=".venv",
    module="peer_shaperouter",
    options=[f"--slots={SLOTS}", "--kernels=off"],
)
# Its weights are rounded, so its tokens may be others.
ENGINE_INT8 = Entry(
    name="shaperouter-int8",
    label="Shaperouter, engine, int8",
    environment=".venv",
    module="peer_shaperouter",
    options=[f"--slots={SLOTS}", "--dtype=int8"],
)
SERVICE = Entry(
    name="shaperouter-grpc",
    label="Shaperouter, gRPC",
    environment=".venv",
    module="peer_shaperouter_grpc",
    options=[f"--slots={SLOTS}"],
)
TRANSFORMERS_XLA = Entry(
    name="transformers-tf-xla",
    label="Transformers, TF + XLA",
    environment=".venvs/bench-tf",
    module="peer_transformers_tf",
    options=["--xla"],
)
TRANSFORMERS_EAGER = Entry(
    name="transformers-tf-eager",
    label="Transformers, TF eager",
    environment=".venvs/bench-tf",
    module="peer_transformers_tf",
    # Over ten seconds a call: enough of it to tell that, and no more.
    kinds=[Kind.GREEDY],
    every=3,
)
TRANSFORMERS_TORCH = Entry(
    name="transformers-torch",
    label="Transformers, PyTorch",
    environment=".venvs/bench-torch",
    module="peer_transformers_torch",
)
CTRANSLATE2 = Entry(
    name="ctranslate2-float32",
    label="CTranslate2, float32",
    environment=".venvs/bench-ct2",
    module="peer_ctranslate2",
    options=["--compute-type=float32"],
    converted=True,
)
# Its arithmetic is another, so its tokens may be, too.
CTRANSLATE2_INT8 = Entry(
    name="ctranslate2-int8",
    label="CTranslate2, int8",
    environment=".venvs/bench-ct2",
    module="peer_ctranslate2",
    options=["--compute-type=int8"],
    converted=True,
)
# What has weights of fewer bits, and other tokens.
ROUNDED = (ENGINE_INT8, CTRANSLATE2_INT8)
# Its `generate` is the behaviour that Shaperouter promises to equal.
REFERENCE = TRANSFORMERS_TORCH

ENTRIES = (
    ENGINE,
    ENGINE_XLA,
    ENGINE_INT8,
    SERVICE,
    TRANSFORMERS_XLA,
    TRANSFORMERS_EAGER,
    TRANSFORMERS_TORCH,
    CTRANSLATE2,
    CTRANSLATE2_INT8,
)
