"""Steps that check several proposed tokens, on texts that repeat and on texts that do not.

Three engines serve the same requests in turn: without proposals, with those of requests' own
tokens, and with those of draft models. The models have the small size of GPT-2:

- *cycles* has weights that continue each token with the next one of its cycle of 64, through all
  layers of the real size. Greedy text repeats the prompt; sampled text departs from it now and
  then, the more often the higher the temperature.
- *random* has random weights; its text repeats nothing, except by chance.

Their draft models are made in the same way, with one layer of width 64. So that of *cycles* knows
what follows, and that of *random* is always wrong.

*demo* is the embedded model; its draft model is its first layer. It continues texts that it has
begun itself, by sampling, before the measurement.

With ``--llamacpp``, llama.cpp serves the requests for greedy text in the same rounds, with and
without its look-up decoding.

Run by ``make bench-speculation``.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from common.checkpoint import SMALL, VOCABULARY, Size, make_checkpoint
from harness.engine import CHECKPOINTS, Bench
from harness.tight import Case
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.worker.scheduler import LaneScheduler

BUILD = Path(__file__).parents[2] / "build" / "bench"
PROMPT, NEW_TOKENS, CYCLE = 128, 120, 64
DRAFT = Size(layers=1, width=64, heads=2)
DEMO = CHECKPOINTS["demo"]
# Tokens of a text of the demo model that are sampled before the measurement.
BEGINNING = 12
# Both engines have the same graphs.
CACHE, CACHE_BYTES = BUILD / "speculation-cache", 10**9
LLAMACPP = Path(__file__).parents[2] / ".venvs" / "bench-llamacpp" / "bin" / "python"


@dataclass(frozen=True, kw_only=True)
class _Text:
    """A kind of text.

    Attributes:
        label: What it is.
        model: The model that makes it.
        options: Options of the requests.
        new_tokens: Length of the answers.
        prompt_has_cycle: Whether the prompt has what the answer will be, for *cycles*.
        has_peer: Whether llama.cpp makes it, too.
    """

    label: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    new_tokens: int = NEW_TOKENS
    prompt_has_cycle: bool = True
    has_peer: bool = False

    def prompt(self, rng: np.random.Generator, bench: Bench) -> list[int]:
        """Makes a prompt, with an engine that makes no proposals."""
        if self.model == "demo":
            seed = int(rng.integers(2**31))
            run = bench.submit("demo", [0], do_sample=True, seed=seed, max_new_tokens=BEGINNING)
            run.wait()
            return [0, *run.token_ids]
        if self.model == "random" or not self.prompt_has_cycle:
            found: list[int] = rng.integers(VOCABULARY - 1, size=PROMPT).tolist()
            return found
        # Two whole cycles, from any of their tokens on.
        first = CYCLE * int(rng.integers(VOCABULARY // CYCLE))
        start = int(rng.integers(CYCLE))
        return [first + (start + place) % CYCLE for place in range(PROMPT)]


def _sampled(temperature: float) -> dict[str, Any]:
    return {"do_sample": True, "temperature": temperature}


TEXTS = (
    _Text(label="repeats its prompt", model="cycles", has_peer=True),
    _Text(
        label="does not repeat, draft model knows it",
        model="cycles",
        new_tokens=CYCLE - 4,
        prompt_has_cycle=False,
    ),
    _Text(label="departs from it now and then", model="cycles", options=_sampled(1.0)),
    _Text(label="departs from it often", model="cycles", options=_sampled(1.2)),
    _Text(label="does not repeat, greedy", model="random", has_peer=True),
    _Text(label="does not repeat, sampled", model="random", options=_sampled(1.0)),
    _Text(label="the demo model's own, greedy", model="demo"),
    _Text(label="the demo model's own, sampled", model="demo", options=_sampled(1.0)),
)


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="requests of each kind and engine")
    parser.add_argument("--together", type=int, default=1, help="requests at the same time")
    parser.add_argument("--dtype", default="float32", choices=["float32", "int8", "int4"])
    parser.add_argument("--llamacpp", action="store_true", help="also measure llama.cpp")
    parser.add_argument("--only", default="", help="measure only texts with this in their label")
    arguments = parser.parse_args()
    if arguments.llamacpp and (arguments.together > 1 or arguments.dtype != "float32"):
        parser.error("--llamacpp: needs --together 1 and --dtype float32")
    models = _make_models("gpt2-small", SMALL) | {"demo": DEMO}
    together = arguments.together
    engines: dict[str, dict[str, Any]] = {
        "off": {},
        "ngram": {"speculate": "ngram"},
        "draft": {"drafts": _make_models("gpt2-draft", DRAFT) | {"demo": _first_layer(DEMO)}},
    }
    benches = {
        name: _bench(models, arguments.dtype, together, options)
        for name, options in engines.items()
    }
    print(
        f"{arguments.dtype}, {together} at a time, prompts of {PROMPT} tokens, {NEW_TOKENS} new "
        f"ones: milliseconds a request, medians of {arguments.rounds}"
    )
    print("| text | off | ngram | off / ngram | accepted | draft | off / draft | accepted |")
    print("|---|---|---|---|---|---|---|---|")
    for text in [text for text in TEXTS if arguments.only in text.label]:
        peer = _Peer(models[text.model]) if arguments.llamacpp and text.has_peer else None
        _measure(text, benches, arguments.rounds, together, peer)


class _Peer:
    """llama.cpp, in a process of its own; see `lookup_llamacpp`."""

    def __init__(self, checkpoint: Path) -> None:
        script = Path(__file__).with_name("lookup_llamacpp.py")
        self._process = subprocess.Popen(
            [LLAMACPP, script, checkpoint, str(os.cpu_count())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._line()

    def seconds(self, prompt: Sequence[int], *, looks_up: bool) -> float:
        """Seconds that a request takes."""
        assert self._process.stdin
        print(json.dumps([prompt, NEW_TOKENS, looks_up]), file=self._process.stdin, flush=True)
        seconds, tokens = json.loads(self._line())
        assert len(tokens) == NEW_TOKENS
        return float(seconds)

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{LLAMACPP} has ended")
        return line


def _measure(
    text: _Text, benches: dict[str, Bench], rounds: int, together: int, peer: _Peer | None
) -> None:
    rng = np.random.default_rng(0)
    lanes = {name: bench.parts.lanes[text.model, 1] for name, bench in benches.items()}
    times: dict[str, list[float]] = {name: [] for name in benches}
    ratios: dict[str, list[float]] = {name: [] for name in benches}
    theirs: dict[bool, list[float]] = {False: [], True: []}
    before = {name: _counts(lane) for name, lane in lanes.items()}
    # The first round warms up.
    for number in range(rounds + 1):
        prompts = [text.prompt(rng, benches["off"]) for _ in range(together)]
        found = {}
        for name in sorted(benches, reverse=bool(number % 2)):
            options = text.options | {"seed": number, "max_new_tokens": text.new_tokens}
            found[name] = _request(benches[name], text.model, prompts, options)
        if any(tokens != found["off"][1] for _, tokens in found.values()):
            raise RuntimeError("proposals have changed a token")
        if number:
            for name, (seconds, _) in found.items():
                times[name].append(1000 * seconds)
                ratios[name].append(found["off"][0] / seconds)
        if peer:
            for looks_up, seconds in theirs.items():
                seconds.append(1000 * peer.seconds(prompts[0], looks_up=looks_up))
    cells = [text.label, f"{statistics.median(times.pop('off')):.0f}"]
    for name, milliseconds in times.items():
        proposed, accepted = (
            now - then for now, then in zip(_counts(lanes[name]), before[name], strict=True)
        )
        cells += [
            f"{statistics.median(milliseconds):.0f}",
            f"{statistics.median(ratios[name]):.3f}",
            f"{accepted} of {proposed}",
        ]
    print(f"| {' | '.join(cells)} |", flush=True)
    if peer:
        peer.close()
        plain, looked_up = (statistics.median(seconds[1:]) for seconds in theirs.values())
        print(
            f"| the same, llama.cpp | {plain:.0f} | {looked_up:.0f} | {plain / looked_up:.3f} |||||"
        )


def _counts(lane: LaneScheduler) -> tuple[int, int]:
    """Proposed and accepted tokens."""
    return sum(lane.proposed_tokens), sum(lane.accepted_tokens)


def _bench(models: dict[str, Path], dtype: str, together: int, options: dict[str, Any]) -> Bench:
    bench = Bench(
        models,
        slots=together,
        max_length=256,
        dtype=dtype,
        compile_cache=CompileCache.open(CACHE, max_bytes=CACHE_BYTES),
        **options,
    )
    case = Case(prompt_tokens=PROMPT, new_tokens=NEW_TOKENS)
    for model in models:
        bench.make_tight(model, [case] * together)
    bench.stop_compiling()
    return bench


def _make_models(name: str, size: Size) -> dict[str, Path]:
    """Writes both models in a size, unless they exist."""
    random, cycles = BUILD / name, BUILD / f"{name}-cycles"
    make_checkpoint(random, size)
    _make_cycles(random, cycles)
    return {"random": random, "cycles": cycles}


def _make_cycles(random: Path, directory: Path) -> None:
    """Writes the model that continues cycles, unless it exists."""
    if directory.exists():
        return
    weights = load_file(random / "model.safetensors")
    # Layers add zeros, so the newest token alone decides the next one.
    for name, weight in weights.items():
        if "c_proj" in name or "wpe" in name:
            weights[name] = np.zeros_like(weight)
    token = np.arange(VOCABULARY)
    before = token // CYCLE * CYCLE + (token - 1) % CYCLE
    embeddings = weights["transformer.wte.weight"]
    weights["lm_head.weight"] = embeddings[np.minimum(before, VOCABULARY - 1)]
    config = json.loads((random / "config.json").read_text(encoding="utf-8"))
    _write(directory, weights, config | {"tie_word_embeddings": False}, random)


def _first_layer(checkpoint: Path) -> Path:
    """Writes a GPT-2 with only its first layer, unless it exists."""
    directory = BUILD / f"{checkpoint.name}-first-layer"
    if directory.exists():
        return directory
    weights = load_file(checkpoint / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not re.search(r"h\.[1-9]", name)}
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    _write(directory, kept, config | {"n_layer": 1}, checkpoint)
    return directory


def _write(
    directory: Path, weights: dict[str, Any], config: dict[str, Any], tokenizer: Path
) -> None:
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    save_file(weights, unfinished / "model.safetensors", metadata={"format": "pt"})
    (unfinished / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (unfinished / name).write_bytes((tokenizer / name).read_bytes())
    unfinished.rename(directory)


def _request(
    bench: Bench, model: str, prompts: Sequence[Sequence[int]], options: dict[str, Any]
) -> tuple[float, list[list[int]]]:
    """Seconds that the requests take together, and their tokens."""
    started = time.perf_counter()
    with bench.admission_held(model):
        runs = [bench.submit(model, prompt, **options) for prompt in prompts]
    for run in runs:
        run.wait()
    return time.perf_counter() - started, [run.token_ids for run in runs]


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)
