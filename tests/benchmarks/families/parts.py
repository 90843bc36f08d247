"""The parts of the benchmark: a model, its contestants and its workloads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from generation.workloads import BEAMS, PROMPT_LENGTHS, SEQUENCES, Kind, Workload

from .checkpoint import (
    BART,
    GPT2,
    GPT2_LARGE,
    MARIAN,
    QWEN3,
    TINY_BART,
    TINY_GPT2,
    TINY_MARIAN,
    TINY_QWEN3,
    Shape,
)
from .formats import Format

SEED = 1
# The largest workload sends as many requests at once; it is also the default of the service.
SLOTS = 8
# PyTorch takes part in every third round: its calls are the slowest, and no target is about it.
RARELY = 3


class Name(StrEnum):
    """The names of the parts, on the command line and in the JSON file."""

    GPT2_FLOAT32 = "gpt2-float32"
    GPT2_BFLOAT16 = "gpt2-bfloat16"
    GPT2_INT8 = "gpt2-int8"
    GPT2_INT4 = "gpt2-int4"
    GPT2_LARGE_INT8 = "gpt2-large-int8"
    QWEN3_INT8 = "qwen3-int8"
    QWEN3_INT4 = "qwen3-int4"
    QWEN3_BFLOAT16 = "qwen3-bfloat16"
    QWEN3_FLOAT32 = "qwen3-float32"
    BART = "bart"
    MARIAN = "marian"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant.

    Attributes:
        label: Label in tables.
        environment: Folder of its environment, relative to the repository.
        module: Its module.
        format: The format of the checkpoint that it loads.
        options: Arguments of its module.
        every: It takes part in every n-th round, starting with the first.
    """

    label: str
    environment: str
    module: str
    format: Format
    options: Sequence[str] = ()
    every: int = 1


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A target: the most that Shaperouter's time may be, relative to the fastest of some others.

    Attributes:
        kind: Kind of the workloads.
        others: The others.
        limit: Maximum of the ratio.
        length: Length of the prompts; None for all.
    """

    kind: Kind
    others: Sequence[Entry]
    limit: float
    length: int | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """A model, its contestants and its workloads.

    Attributes:
        name: Its name.
        title: Title of its tables.
        shape: The model.
        entries: The contestants; Shaperouter is the first.
        workloads: The workloads, in order.
        goals: The targets.
        compares: Whether tokens are compared; with weights of fewer bits, all differ.
    """

    name: Name
    title: str
    shape: Shape
    entries: Sequence[Entry]
    workloads: Sequence[Workload]
    compares: bool = True
    goals: Sequence[Goal] = ()


def _ours(dtype: str, *, has_encoder: bool = False) -> Entry:
    return Entry(
        label="Shaperouter" if dtype == "float32" else f"Shaperouter, {dtype}",
        environment=".venv",
        module=f"{'t5' if has_encoder else 'generation'}.peer_shaperouter",
        format=Format.HUGGING_FACE,
        options=[f"--slots={1 if has_encoder else SLOTS}", f"--dtype={dtype}"],
    )


def _torch(*, dtype: str = "", has_encoder: bool = False) -> Entry:
    return Entry(
        label=f"Transformers, PyTorch{dtype and f', {dtype}'}",
        environment=".venvs/bench-torch",
        module=f"{'t5' if has_encoder else 'generation'}.peer_transformers_torch",
        format=Format.HUGGING_FACE,
        options=[f"--dtype={dtype}"] if dtype else (),
        every=RARELY,
    )


def _ctranslate2(dtype: str, *, has_encoder: bool = False) -> Entry:
    return Entry(
        label=f"CTranslate2, {dtype}",
        environment=".venvs/bench-ct2",
        module=f"{'t5' if has_encoder else 'generation'}.peer_ctranslate2",
        format=Format.CTRANSLATE2,
        options=[f"--compute-type={dtype}"],
    )


def _llamacpp(kind: str, written: Format) -> Entry:
    return Entry(
        label=f"llama.cpp, {kind}",
        environment=".venvs/bench-llamacpp",
        module="families.peer_llamacpp",
        format=written,
    )


def _openvino(name: str, written: Format, *options: str) -> Entry:
    return Entry(
        label=f"OpenVINO, {name}",
        environment=".venvs/bench-openvino",
        module="families.peer_openvino",
        format=written,
        options=options,
    )


def parts(*, tiny: bool = False) -> list[Part]:
    """All parts, in order; tiny ones have small models, to try out the benchmark."""
    gpt2, qwen3 = (TINY_GPT2, TINY_QWEN3) if tiny else (GPT2, QWEN3)
    bart, marian = (TINY_BART, TINY_MARIAN) if tiny else (BART, MARIAN)
    int8 = [
        _llamacpp("Q8_0", Format.GGUF_Q8),
        _openvino("int8", Format.OPENVINO_INT8),
        _ctranslate2("int8"),
    ]
    int4 = [
        _llamacpp("Q4_0", Format.GGUF_Q4),
        _openvino("int4", Format.OPENVINO_INT4),
    ]
    exact = [
        _llamacpp("F32", Format.GGUF_F32),
        _openvino("float32", Format.OPENVINO_F32, "--exact"),
        _ctranslate2("float32"),
    ]
    bfloat16 = [
        _llamacpp("BF16", Format.GGUF_BF16),
        _openvino("bfloat16", Format.OPENVINO_F32),
        _torch(dtype="bfloat16"),
    ]
    decoder = Part(
        name=Name.QWEN3_INT8,
        title=f"{qwen3.label}, int8",
        shape=qwen3,
        entries=[_ours("int8"), *int8],
        workloads=_decoder_workloads(qwen3),
        compares=False,
        goals=[Goal(kind=kind, others=int8, limit=0.75) for kind in (Kind.GREEDY, Kind.EIGHT)],
    )
    seq2seq = Part(
        name=Name.BART,
        title=bart.label,
        shape=bart,
        entries=[
            _ours("float32", has_encoder=True),
            _ours("int8", has_encoder=True),
            fastest := _ctranslate2("float32", has_encoder=True),
            _ctranslate2("int8", has_encoder=True),
            _torch(has_encoder=True),
        ],
        workloads=_source_workloads(bart),
        goals=[Goal(kind=kind, others=[fastest], limit=0.9) for kind in (Kind.GREEDY, Kind.BEAMS)],
    )
    small = replace(decoder, shape=gpt2, workloads=_decoder_workloads(gpt2))
    large = TINY_GPT2 if tiny else GPT2_LARGE
    short, long = PROMPT_LENGTHS
    return [
        replace(
            small,
            name=Name.GPT2_FLOAT32,
            title=f"{gpt2.label}, float32",
            entries=[_ours("float32"), *exact],
            compares=True,
            goals=_goals(
                exact,
                (Kind.GREEDY, short, 0.95),
                (Kind.GREEDY, long, 0.9),
                (Kind.EIGHT, None, 0.85),
            ),
        ),
        replace(
            small,
            name=Name.GPT2_BFLOAT16,
            title=f"{gpt2.label}, bfloat16",
            entries=[_ours("bfloat16"), default := _openvino("bfloat16", Format.OPENVINO_F32)],
            goals=[
                Goal(kind=kind, others=[default], limit=0.9) for kind in (Kind.GREEDY, Kind.EIGHT)
            ],
        ),
        replace(
            small,
            name=Name.GPT2_INT8,
            title=f"{gpt2.label}, int8",
            goals=_goals(
                int8,
                (Kind.GREEDY, short, 0.8),
                (Kind.GREEDY, long, 0.65),
                (Kind.EIGHT, None, 0.7),
            ),
        ),
        replace(
            small,
            name=Name.GPT2_INT4,
            title=f"{gpt2.label}, int4",
            entries=[_ours("int4"), q4 := _llamacpp("Q4_0", Format.GGUF_Q4)],
            goals=_goals(
                [q4],
                (Kind.GREEDY, short, 0.85),
                (Kind.GREEDY, long, 0.7),
                (Kind.EIGHT, short, 0.45),
                (Kind.EIGHT, long, 0.5),
            ),
        ),
        replace(
            small,
            name=Name.GPT2_LARGE_INT8,
            title=f"{large.label}, int8",
            shape=large,
            entries=[_ours("int8"), q8 := _llamacpp("Q8_0", Format.GGUF_Q8)],
            workloads=_decoder_workloads(large)[:1],
            goals=[Goal(kind=Kind.GREEDY, others=[q8], limit=0.9)],
        ),
        decoder,
        replace(
            decoder,
            name=Name.QWEN3_INT4,
            title=f"{qwen3.label}, int4",
            entries=[_ours("int4"), *int4],
            goals=[Goal(kind=kind, others=int4, limit=0.8) for kind in (Kind.GREEDY, Kind.EIGHT)],
        ),
        replace(
            decoder,
            name=Name.QWEN3_BFLOAT16,
            title=f"{qwen3.label}, bfloat16",
            entries=[_ours("bfloat16"), *bfloat16],
            goals=(),
        ),
        replace(
            decoder,
            name=Name.QWEN3_FLOAT32,
            title=f"{qwen3.label}, float32",
            entries=[_ours("float32"), *exact, _torch(dtype="float32")],
            compares=True,
            goals=(),
        ),
        seq2seq,
        replace(
            seq2seq,
            name=Name.MARIAN,
            title=marian.label,
            shape=marian,
            workloads=_source_workloads(marian),
        ),
    ]


def _goals(others: Sequence[Entry], *limits: tuple[Kind, int | None, float]) -> list[Goal]:
    """Targets against the fastest of others: kind, length of the prompts, and limit of each."""
    return [
        Goal(kind=kind, others=others, limit=limit, length=length) for kind, length, limit in limits
    ]


def _decoder_workloads(shape: Shape) -> list[Workload]:
    rng = np.random.default_rng(SEED)
    prompts = {length: shape.draw_prompts(rng, SEQUENCES, length) for length in PROMPT_LENGTHS}
    return [
        Workload(
            name=f"{kind}-{length}",
            label=f"{label}, prompt {length}",
            kind=kind,
            prompts=prompts[length][:rows],
        )
        for kind, label, rows in (
            (Kind.GREEDY, "one sequence", 1),
            (Kind.EIGHT, f"{SEQUENCES} sequences", SEQUENCES),
        )
        for length in PROMPT_LENGTHS
    ]


def _source_workloads(shape: Shape) -> list[Workload]:
    rng = np.random.default_rng(SEED)
    sources = {length: shape.draw_prompts(rng, 1, length) for length in PROMPT_LENGTHS}
    return [
        Workload(
            name=f"{kind}-{length}",
            label=f"{label}, source {length}",
            kind=kind,
            prompts=sources[length],
            options=options,
        )
        for kind, label, options in (
            (Kind.GREEDY, "greedy", {}),
            (Kind.BEAMS, f"{BEAMS} beams", {"num_beams": BEAMS}),
        )
        for length in PROMPT_LENGTHS
    ]
