"""An engine in this process, and runs on it, for tests of what is below gRPC."""

import json
import os
import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import shaperouter_service
from harness.waiting import wait_until
from shaperouter_service.decoding import SlotOptions
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.run import (
    Ended,
    Event,
    Failed,
    FinishReason,
    NewTokens,
    Run,
    Timings,
)

GOLDENS = Path(__file__).parents[1] / "goldens"
TINY = ("gpt2-odd-heads", "gpt2-untied", "gpt2-many-eos", "gpt2-bare")
CHECKPOINTS = {name: GOLDENS / name for name in TINY} | {
    "demo": Path(shaperouter_service.__file__).parent / "builtin" / "demo"
}
SLOTS = 4
TIMEOUT = 120.0


@dataclass(frozen=True, kw_only=True)
class Golden:
    """What the reference implementation says of one checkpoint."""

    name: str
    directory: Path
    cases: list[dict[str, Any]]
    probabilities: list[dict[str, Any]]
    eos_token_ids: list[int]
    max_length: int

    @classmethod
    def read(cls, name: str) -> "Golden":
        content = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
        return cls(
            name=name,
            directory=CHECKPOINTS[name],
            cases=content["cases"],
            probabilities=content["probabilities"],
            eos_token_ids=content["eos_token_ids"],
            max_length=content["n_positions"],
        )


@dataclass
class Collected:
    """A run's events, as they come."""

    run: Run
    events: "queue.SimpleQueue[Event]"
    token_ids: list[int] = field(default_factory=list)
    seen: list[Event] = field(default_factory=list)

    def next(self) -> Event:
        event = self.events.get(timeout=TIMEOUT)
        self.seen.append(event)
        if isinstance(event, NewTokens):
            self.token_ids.extend(event.token_ids)
        return event

    def wait(self) -> FinishReason:
        """Waits for the end; fails if the run does."""
        while True:
            match self.next():
                case Ended(reason):
                    return reason
                case Failed(error):
                    raise error


class Bench:
    """An engine, and runs on it."""

    def __init__(self, models: dict[str, Path], *, slots: int = SLOTS, **options: Any) -> None:
        settings = {"queue_limit": 1000, "compile_threads": 2} | options
        self.defects: list[str] = []
        self.engine = Engine(
            models,
            slots=slots,
            on_change=lambda: None,
            on_defect=lambda: self.defects.append("defect"),
            **settings,
        )

    def submit(
        self,
        model: str,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        eos_token_ids: Sequence[int] = (),
        do_sample: bool = False,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> Collected:
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        options = SlotOptions.of(
            max_new_tokens=max_new_tokens,
            do_sample=do_sample,
            temperature=temperature,
            seed=seed,
            eos_token_ids=eos_token_ids,
        )
        run = Run(
            request_id="test",
            token_ids=prompt,
            max_new_tokens=max_new_tokens,
            eos_token_ids=eos_token_ids,
            options=options,
            emit=events.put,
            timings=Timings(arrived=0.0),
        )
        self.engine.submit(run, model)
        return Collected(run, events)

    def submit_case(self, golden: Golden, case: dict[str, Any]) -> Collected:
        return self.submit(
            golden.name,
            case["prompt_token_ids"],
            max_new_tokens=case["max_new_tokens"],
            eos_token_ids=golden.eos_token_ids,
        )

    def make_all_ready(self, model: str) -> list[Graph]:
        """Compiles every graph a model can have."""
        scheduler = self.engine._lanes[model]
        table = self.engine._graphs
        graphs = [
            table.want(signature, urgent=False) for signature in scheduler.ladders.signatures(model)
        ]
        wait_until(lambda: all(graph.state is GraphState.READY for graph in graphs))
        return graphs
