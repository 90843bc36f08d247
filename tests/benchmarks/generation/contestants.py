"""The contestants, their environments and their workloads."""

from collections.abc import Sequence
from dataclasses import dataclass

from .workloads import Kind

# The widest workload sends as many requests at once; it is also the default of the service.
SLOTS = 8


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant, as the conductor knows it.

    Attributes:
        name: Name in the JSON file and on the command line.
        label: Label in tables and plots.
        environment: Folder of its environment, relative to the repository.
        module: Its module in this package.
        options: Arguments of its module.
        converted: Whether it loads the checkpoint in CTranslate2's format.
        kinds: Kinds of the workloads that it takes part in.
        every: It takes part in every n-th round, starting with the first.
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
# With XLA's own products, as without a C++ compiler.
ENGINE_XLA = Entry(
    name="shaperouter-xla",
    label="Shaperouter, engine without kernels",
    environment=".venv",
    module="peer_shaperouter",
    options=[f"--slots={SLOTS}", "--kernels=off"],
)
# Its weights are rounded, so its tokens may differ.
ENGINE_INT8 = Entry(
    name="shaperouter-int8",
    label="Shaperouter, engine, int8",
    environment=".venv",
    module="peer_shaperouter",
    options=[f"--slots={SLOTS}", "--dtype=int8"],
)
ENGINE_INT4 = Entry(
    name="shaperouter-int4",
    label="Shaperouter, engine, int4",
    environment=".venv",
    module="peer_shaperouter",
    options=[f"--slots={SLOTS}", "--dtype=int4"],
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
    # Each call takes over ten seconds, so a few are enough.
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
# It computes in another way, so its tokens may differ.
CTRANSLATE2_INT8 = Entry(
    name="ctranslate2-int8",
    label="CTranslate2, int8",
    environment=".venvs/bench-ct2",
    module="peer_ctranslate2",
    options=["--compute-type=int8"],
    converted=True,
)
# Contestants with weights of fewer bits, whose tokens differ.
ROUNDED = (ENGINE_INT8, ENGINE_INT4, CTRANSLATE2_INT8)
# The reference: Shaperouter promises the same results as its `generate`.
REFERENCE = TRANSFORMERS_TORCH

ENTRIES = (
    ENGINE,
    ENGINE_XLA,
    ENGINE_INT8,
    ENGINE_INT4,
    SERVICE,
    TRANSFORMERS_XLA,
    TRANSFORMERS_EAGER,
    TRANSFORMERS_TORCH,
    CTRANSLATE2,
    CTRANSLATE2_INT8,
)
