"""An engine in this process, and runs on it, for tests below gRPC."""

import dataclasses
import json
import math
import os
import queue
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from shaperouter_service.worker.xla_flags import xla_flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# As a worker does.
os.environ["XLA_FLAGS"] = xla_flags(os.environ.get("XLA_FLAGS", ""), only_kernels=True)

import numpy as np
import pytest
import tensorflow as tf

import shaperouter_service
from harness.tight import Case, tight_signatures
from harness.waiting import wait_until
from shaperouter_service.decoding import Options
from shaperouter_service.decoding.attention import (
    PromptAttention,
    SourceAttention,
    SourceCaches,
)
from shaperouter_service.errors import ServiceError
from shaperouter_service.generation.option import EarlyStopping
from shaperouter_service.generation.run_events import (
    FinishReason,
    Hypothesis,
    NewTokens,
    PromptLogprobs,
    TokenLogprobs,
)
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.models import EncoderDecoder, Family, Model, Weights
from shaperouter_service.models.t5 import T5
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.constraints import forced_tokens
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.run import Ended, Event, Failed, Run, Timings

GOLDENS = Path(__file__).parents[1] / "goldens"
TINY = (
    "gpt2-odd-heads",
    "gpt2-untied",
    "gpt2-many-eos",
    "gpt2-bare",
    "opt-pre",
    "opt-post",
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "ministral",
    "gemma2",
    "gemma3",
    "phi3",
    "smollm3",
    "t5-tied",
    "t5-gated",
    "mt5",
    "bart",
    "mbart",
    "marian",
    "pegasus",
    "m2m100",
)
CHECKPOINTS = {name: GOLDENS / name for name in TINY} | {
    "demo": Path(shaperouter_service.__file__).parent / "builtin" / "demo"
}
SLOTS = 4
TIMEOUT = 300.0
# `TEST_KERNELS=off pytest tests/engine/test_goldens.py` compares all goldens without the kernels.
KERNELS = os.environ.get("TEST_KERNELS", "auto")


def cached(handle: tf.Tensor) -> np.ndarray:
    """The content of one of a batch's caches."""
    found: np.ndarray = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32).numpy()
    return found


@dataclass(frozen=True, kw_only=True)
class Golden:
    """The results of the reference implementation for one checkpoint."""

    name: str
    directory: Path
    cases: list[dict[str, Any]]
    option_cases: list[dict[str, Any]]
    probabilities: list[dict[str, Any]]
    sampling_cases: list[dict[str, Any]]
    logprob_cases: list[dict[str, Any]]
    score_cases: list[dict[str, Any]]
    eos_token_ids: list[int]
    max_length: int
    decoder_start_token_id: int | None

    @classmethod
    def read(cls, name: str) -> "Golden":
        content = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
        return cls(
            name=name,
            directory=CHECKPOINTS[name],
            cases=content["cases"],
            option_cases=content.get("option_cases", []),
            probabilities=content["probabilities"],
            sampling_cases=content.get("sampling_cases", []),
            logprob_cases=content.get("logprob_cases", []),
            score_cases=content["score_cases"],
            eos_token_ids=content["eos_token_ids"],
            max_length=content["max_length"],
            decoder_start_token_id=content.get("decoder_start_token_id"),
        )

    @property
    def has_encoder(self) -> bool:
        return self.decoder_start_token_id is not None

    def source(self, case: dict[str, Any]) -> list[int]:
        """The source of a case; empty without an encoder."""
        return case["prompt_token_ids"] if self.has_encoder else []

    def prompt(self, case: dict[str, Any]) -> list[int]:
        """The prompt of a case; with an encoder, the decoder's."""
        if not self.has_encoder:
            return case["prompt_token_ids"]
        decoder = case.get("options", case).get("decoder_token_ids", [])
        return [self.decoder_start_token_id, *decoder]

    def options(self, case: dict[str, Any]) -> dict[str, Any]:
        """The options of a case for `Bench.submit`."""
        given = case.get("options") or {"max_new_tokens": case["max_new_tokens"]}
        options = {"eos_token_ids": self.eos_token_ids} | given
        options.pop("decoder_token_ids", None)
        biases = [((token,), bias) for token, bias in options.pop("logit_bias", [])]
        bad_words = options.pop("bad_words_token_ids", [])
        # Runs of one end token are ignored, as in Transformers; routers leave them out.
        ends = [[token] for token in options["eos_token_ids"]]
        biases += [(tuple(run), -math.inf) for run in bad_words if run not in ends]
        biases += [((token,), -math.inf) for token in options.pop("suppress_tokens", [])]
        if "early_stopping" in options:
            options["early_stopping"] = EarlyStopping[options["early_stopping"].upper()]
        return options | {"biases": biases}


def last_logits(model: Model, prompt: tf.Tensor, source: Sequence[int] = ()) -> tf.Tensor:
    """Logits [1, V] after a prompt [1, P], computed without graphs and batches."""
    positions = tf.range(prompt.shape[1])[tf.newaxis]
    attend = prompt_attention(model, prompt.shape[1], source)
    hidden = model.family.forward(model.weights, prompt, positions, attend)
    return model.family.logits(model.weights, hidden[:, -1])


def prompt_attention(model: Model, length: int, source: Sequence[int] = ()) -> PromptAttention:
    """The attention of one prompt that is read whole, and of its source if it has one."""
    caches = empty_caches(model.family, length, model.cache_dtype)
    return PromptAttention(caches, tf.constant(0), length, source_attention(model, source))


def empty_caches(family: Family, length: int, dtype: tf.DType = tf.float32) -> list[tf.Tensor]:
    """A stack of keys and one of values for one row."""
    shape = [1, family.layers, family.heads, length, family.head_size]
    return [tf.zeros(shape, dtype), tf.zeros(shape, dtype)]


def encoded(
    family: EncoderDecoder,
    weights: Weights,
    source: tf.Tensor,
    lengths: tf.Tensor,
    *,
    positions: int,
    dtype: tf.DType = tf.float32,
) -> list[tf.Tensor]:
    """The caches of one source, computed without any graph or batch."""
    keep = SourceCaches(empty_caches(family, positions, dtype))
    family.encode(weights, source, lengths, keep)
    caches: list[tf.Tensor] = keep.caches
    return caches


def source_attention(model: Model, source: Sequence[int]) -> SourceAttention | None:
    """The attention to a source; None if it is empty."""
    if not isinstance(model.family, EncoderDecoder) or not source:
        return None
    lengths = tf.constant([len(source)])
    sources = tf.constant([source])
    caches = encoded(
        model.family,
        model.weights,
        sources,
        lengths,
        positions=len(source),
        dtype=model.dtype,
    )
    return SourceAttention(caches, lengths)


def assert_equals(collected: "Collected", case: dict[str, Any]) -> None:
    """Waits for a run and compares it with its golden case, token for token."""
    reason = collected.wait()
    sequences = case.get("sequences") or [case]
    found: Sequence[Hypothesis] = collected.hypotheses or [
        Hypothesis(token_ids=collected.token_ids, finish_reason=reason, score=math.nan)
    ]
    assert (case["name"], [list(one.token_ids) for one in found]) == (
        case["name"],
        [one["token_ids"] for one in sequences],
    )
    assert [one.finish_reason.name.lower() for one in found] == [
        one["finish_reason"] for one in sequences
    ]
    for one, expected in zip(found, sequences, strict=True):
        if "score" in expected:
            assert math.isclose(one.score, expected["score"], rel_tol=1e-4), case["name"]


@dataclass
class Collected:
    """The events of a run as they arrive; its tokens are those of the best sequence."""

    run: Run
    events: "queue.SimpleQueue[Event]"
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    hypotheses: Sequence[Hypothesis] = ()
    reason: FinishReason | None = None
    seen: list[Event] = field(default_factory=list)

    def next(self) -> Event:
        event = self.events.get(timeout=TIMEOUT)
        self.seen.append(event)
        if isinstance(event, NewTokens):
            self.token_ids.extend(event.token_ids)
            self.logprobs.extend(event.logprobs)
        if isinstance(event, PromptLogprobs):
            self.prompt_logprobs.extend(event.logprobs)
        if isinstance(event, Ended):
            self.hypotheses = event.hypotheses
            if event.hypotheses:
                self.token_ids = list(event.hypotheses[0].token_ids)
        return event

    def wait(self) -> FinishReason:
        """Waits for the end; raises the run's error."""
        while True:
            match self.next():
                case Ended(reason=reason):
                    self.reason = reason
                    return reason
                case Failed(error):
                    raise error


_DEFAULT = Ladders.default


def source_ladders(golden: Golden, slots: int = 1) -> Ladders:
    """The ladders of a checkpoint with an encoder."""
    return _DEFAULT(
        max_length=golden.max_length,
        slots=slots,
        prefill_piece=T5.prompt_piece,
        max_source_length=golden.max_length,
    )


def few_rungs(*, max_length: int, slots: int, prefill_piece: int, **settings: Any) -> Ladders:
    """Ladders with few graphs: three rungs for prompts and sources, one for caches."""
    full = _DEFAULT(max_length=max_length, slots=slots, prefill_piece=prefill_piece, **settings)
    few = Ladder(tuple(sorted({16, 48, max_length})))
    return dataclasses.replace(
        full,
        encoder=full.encoder and dataclasses.replace(full.encoder, lengths=few, rows=Ladder((1,))),
        prefill_lengths=few,
        prefill_rows=Ladder((1,)),
        lanes=tuple(
            dataclasses.replace(lane, decode_lengths=Ladder((lane.decode_lengths.maximum,)))
            for lane in full.lanes
        ),
    )


class Bench:
    """An engine, and runs on it.

    Graphs are chosen by estimated costs, never by measured ones, so that every machine chooses the
    same graphs.

    Attributes:
        engine: The engine.
        parts: Its parts; see `EngineParts`.
        all: All benches that were started in this process.
    """

    all: ClassVar[list["Bench"]] = []

    def __init__(
        self,
        models: dict[str, Path],
        *,
        slots: int = SLOTS,
        ladders: Callable[..., Ladders] = Ladders.default,
        **options: Any,
    ) -> None:
        # Arguments of the engine besides its configuration.
        names = ("compile_cache", "record", "prefetched")
        given = {name: options.pop(name) for name in names if name in options}
        settings = {
            "dtype": "float32",
            "kernels": KERNELS,
            # All runs are of one client, which may fill half of it.
            "queue_limit": 4000,
            "compile_threads": 3,
            "max_graphs": 1000,
        } | options
        self.defects: list[str] = []
        self._queues: list[queue.SimpleQueue[Event]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ladders, "default", ladders)
            self.engine = Engine(
                EngineConfig(models=models, slots=slots, **settings),
                on_change=lambda: None,
                on_warm=lambda: None,
                on_defect=self._defect,
                **given,
            )
        self.parts = self.engine.parts
        self.parts.costs.measured = lambda *_: None
        Bench.all.append(self)

    @contextmanager
    def admission_held(self, model: str, beams: int = 1) -> Iterator[None]:
        """Keeps the runs of a lane in its queue; they are admitted together at the end."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.parts.lanes[model, beams], "admit", lambda: None)
            yield
        self.parts.device.wake()

    @contextmanager
    def only_ready(self, cover: Graph) -> Iterator[None]:
        """Makes a graph the only ready one of its kind and beam width."""
        lattice = cover.signature.kind, cover.signature.beams
        ready = self.parts.graphs.ready
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                self.parts.graphs,
                "ready",
                lambda model, kind, beams: (
                    [cover] if (kind, beams) == lattice else ready(model, kind, beams)
                ),
            )
            yield

    def stop_compiling(self) -> None:
        """Drops queued compilations and waits for running ones."""
        self.parts.graphs.stop()

    def _defect(self) -> None:
        """Fails every run after the device thread has ended, so that no test waits for them."""
        self.defects.append("defect")
        for events in self._queues:
            events.put(Failed(ServiceError("the device thread has failed")))

    def submit(
        self,
        model: str,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        lane_beams: int = 0,
        num_return_sequences: int = 1,
        generated_token_ids: Sequence[int] = (),
        source: Sequence[Any] = (),
        source_length: int | None = None,
        source_key: bytes = b"",
        aligns: bool = False,
        suspect: bool = False,
        stop: Sequence[str] = (),
        grammar: str = "",
        prompt_logprobs: int | None = None,
        scored: int = 0,
        prefix_scope: str = "",
        **options: Any,
    ) -> Collected:
        """Runs or continues a request; the options are those of `Options.of`."""
        stop_tokens = None
        if stop:
            size = self.engine.model(model).vocab_size
            stop_tokens = self.engine.vocabularies.stop_tokens(
                model, size, stop, continues_text=False
            )
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        run = Run(
            request_id="test",
            client="test",
            lane_beams=lane_beams,
            token_ids=prompt,
            generated_token_ids=generated_token_ids,
            resumed=bool(generated_token_ids),
            suspect=suspect,
            source=source,
            source_key=source_key,
            source_length=len(source) if source_length is None else source_length,
            aligns=aligns,
            max_new_tokens=max_new_tokens,
            eos_token_ids=options.get("eos_token_ids", ()),
            num_beams=options.get("num_beams", 1),
            num_return_sequences=num_return_sequences,
            logprobs=options.get("logprobs"),
            prompt_logprobs=prompt_logprobs,
            scored=scored,
            prefix_scope=prefix_scope,
            options=Options.of(max_new_tokens=max_new_tokens, **options),
            emit=events.put,
            timings=Timings(arrived=0.0),
            stop_tokens=stop_tokens,
        )
        if grammar:
            run.constraint = self.engine.vocabularies.constraint(
                model,
                self.engine.model(model).vocab_size,
                grammar,
                eos_token_ids=run.eos_token_ids,
                generated=generated_token_ids[forced_tokens(run) :],
            )
        self.engine.submit(run, model)
        self._queues.append(events)
        return Collected(run, events)

    def submit_case(self, golden: Golden, case: dict[str, Any]) -> Collected:
        return self.submit(
            golden.name,
            golden.prompt(case),
            source=golden.source(case),
            **golden.options(case),
        )

    def make_tight(self, model: str, *groups: Sequence[Case]) -> None:
        """Compiles the tight covers of requests; those of a group run together."""
        ladders, table = self.parts.ladders[model], self.parts.graphs
        graphs = [
            table.request_compile(signature, urgent=False)
            for group in groups
            for signature in tight_signatures(model, ladders, group)
        ]
        wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs))

    def make_all_ready(self, model: str, beams: Collection[int] = (1,)) -> list[Graph]:
        """Compiles every graph of the lanes with these beam widths."""
        table = self.parts.graphs
        graphs = [
            table.request_compile(signature, urgent=False)
            for signature in self.parts.ladders[model].signatures(model)
            if signature.beams in beams
        ]
        # About fifty compilations, on a machine that may be busy.
        wait_until(
            lambda: all(graph.state is GraphState.READY for graph in graphs), timeout=2 * TIMEOUT
        )
        return graphs
