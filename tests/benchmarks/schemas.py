"""Structured output: whether texts follow a thousand JSON schemas, and what a schema costs a token.

The first part sends random schemas, and those of JSON-Schema-Test-Suite if a checkout is given, to
the demo model of a real service. It fails if a complete text does not follow its schema, or if a
graph is traced or compiled. The second part measures a token of GPT-2 small (random weights, a
vocabulary of 50,257 byte strings) with and without a schema, in turn.

Run by ``make bench-schemas``.
"""

import argparse
import collections
import json
import random
import re
import shutil
import statistics
import string
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema

from common.checkpoint import VOCABULARY, make_checkpoint
from harness.service import LOCAL, Service
from shaperouter import Client, FinishReason, InvalidArgumentError

BUILD = Path(__file__).parents[2] / "build" / "bench"
CALLERS, NEW_TOKENS, TIMEOUT = 8, 160, 600
# The schema of the second part. Its texts are longer than the measured tokens.
ENDLESS = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "number"}},
        "required": ["name", "size"],
        "additionalProperties": False,
    },
}
MEASURED_TOKENS, LANE = 64, 8


def main() -> int:
    """Checks, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=1000, help="random schemas")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random schemas")
    parser.add_argument("--suite", type=Path, help="a checkout of JSON-Schema-Test-Suite")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of the measurement; 0: none")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    schemas = [_schema(rng, depth=3) for _ in range(arguments.schemas)]
    failed = _check("random", schemas)
    if arguments.suite:
        failed |= _check("of the suite", list(_of_suite(arguments.suite)))
    if arguments.rounds:
        _measure(arguments.rounds)
    return failed


# --- Whether texts follow their schemas ----------------------------------------------------------


def _check(name: str, schemas: list[Any]) -> int:
    service = Service(
        "serve",
        "--model=demo",
        f"--slots={CALLERS}",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
    )
    try:
        service.wait_until_ready()
        with Client(service.address) as client, ThreadPoolExecutor(CALLERS) as callers:
            before = _made(client)

            def ask(index: int) -> str:
                return _outcome(client, index, schemas[index])

            started = time.monotonic()
            outcomes = collections.Counter(callers.map(ask, range(len(schemas))))
            seconds = time.monotonic() - started
            made = {graph: count for graph, count in _made(client).items() if count > 1}
            grown = _made(client).keys() - before.keys()
    finally:
        service.close()
    print(f"{len(schemas)} schemas, {name}, in {seconds:.0f} s:")
    for outcome, count in sorted(outcomes.items(), key=lambda item: -item[1]):
        print(f"  {count:5} {outcome}")
    print(f"  graphs compiled meanwhile, each once: {len(grown)}; more than once: {made or 'none'}")
    wrong = sum(count for outcome, count in outcomes.items() if outcome.startswith("WRONG"))
    return int(bool(wrong or made))


def _made(client: Client) -> dict[str, int]:
    """How often each graph was traced."""
    return {str(graph.signature): graph.traces for graph in client.graphs() if graph.traces}


def _outcome(client: Client, index: int, schema: Any) -> str:
    try:
        result = client.generate(
            "JSON: ",
            json_schema=json.dumps(schema),
            max_new_tokens=NEW_TOKENS,
            temperature=1.2,
            seed=index,
            timeout=TIMEOUT,
        )
    except InvalidArgumentError as error:
        told = re.sub(r"'[^']*'|\"[^\"]*\"|[\d.]+", "…", str(error).partition(": ")[2])
        return f"refused: {told[:90]}"
    (sequence,) = result.sequences
    if sequence.finish_reason is FinishReason.LENGTH:
        return "cut off by max_new_tokens"
    try:
        jsonschema.validate(json.loads(sequence.text), schema)
    except jsonschema.SchemaError as error:
        # Python has another syntax of regular expressions.
        return f"complete, but the validator refuses the schema: {error.message[:60]}"
    except (ValueError, jsonschema.ValidationError) as error:
        return f"WRONG: {sequence.text!r} for {json.dumps(schema)}: {str(error).splitlines()[0]}"
    return "complete and valid"


def _schema(rng: random.Random, *, depth: int) -> dict[str, Any]:
    """A random schema."""
    kinds = [_text, _number, _integer, _simple, _values]
    if depth:
        kinds += 2 * [_object, _array, _tuple, _alternatives]
    return rng.choice(kinds)(rng, depth - 1)


def _text(rng: random.Random, _: int) -> dict[str, Any]:
    limits = {"minLength": rng.randrange(3), "maxLength": rng.randrange(3, 12)}
    pattern, form = {"pattern": "^[a-c]{2,5}$"}, {"format": rng.choice(FORMATS)}
    return {"type": "string", **rng.choice([{}, limits, pattern, form])}


def _number(rng: random.Random, _: int) -> dict[str, Any]:
    low, high = sorted(rng.sample(range(-50, 50), 2))
    return {"type": "number", **rng.choice([{}, {"minimum": low, "maximum": high}])}


def _integer(rng: random.Random, _: int) -> dict[str, Any]:
    low, high = sorted(rng.sample(range(-50, 50), 2))
    limits = {"exclusiveMinimum": low, "maximum": high}
    return {"type": "integer", **rng.choice([{}, limits, {"multipleOf": 3}])}


def _simple(rng: random.Random, _: int) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null"])}


def _values(rng: random.Random, _: int) -> dict[str, Any]:
    several = rng.sample(["a", "b c", 1, 2.5, None, True, ["x"], {"y": 1}], 3)
    return rng.choice([{"enum": several}, {"const": several[0]}])


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(string.ascii_lowercase, rng.randrange(1, 5))
    return {
        "type": "object",
        "properties": {name: _schema(rng, depth=depth) for name in names},
        "required": rng.sample(names, rng.randrange(len(names) + 1)),
        "additionalProperties": rng.choice([False, {"type": "integer"}]),
    }


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    limits = rng.choice([{}, {"minItems": 1, "maxItems": 3}])
    return {"type": "array", "items": _schema(rng, depth=depth), **limits}


def _tuple(rng: random.Random, depth: int) -> dict[str, Any]:
    items = [_schema(rng, depth=depth) for _ in range(2)]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": 2}


def _alternatives(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_schema(rng, depth=depth) for _ in range(2)]}


FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "email")


def _of_suite(suite: Path) -> Iterator[Any]:
    """The schemas of JSON-Schema-Test-Suite, each once."""
    seen = set()
    for path in sorted((suite / "tests" / "draft2020-12").glob("*.json")):
        for group in json.loads(path.read_text()):
            text = json.dumps(group["schema"])
            if text not in seen:
                seen.add(text)
                yield group["schema"]


# --- What a schema costs -------------------------------------------------------------------------


def _measure(rounds: int) -> None:
    service = Service(
        "serve",
        f"--model=gpt2={_with_byte_strings()}",
        f"--slots={LANE}",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
        "--dtype=float32",
    )
    try:
        service.wait_until_ready()
        with Client(service.address) as client, ThreadPoolExecutor(LANE) as callers:
            schema = json.dumps(ENDLESS)

            def token_ms(given: str) -> float:
                options: dict[str, Any] = {"json_schema": given} if given else {}
                result = client.generate(
                    list(range(1000, 1016)),
                    max_new_tokens=MEASURED_TOKENS,
                    temperature=1.0,
                    seed=1,
                    timeout=TIMEOUT,
                    **options,
                )
                assert result.usage.generated_tokens == MEASURED_TOKENS
                return 1000 * result.timings.decode_seconds / (MEASURED_TOKENS - 1)

            def one(constrained: bool) -> float:
                return token_ms(schema if constrained else "")

            def eight(constrained: bool) -> float:
                half = [schema if constrained else ""] * (LANE // 2)
                return statistics.median(callers.map(token_ms, half + [""] * (LANE // 2)))

            for name, measured in (("one sequence", one), ("8, half of them with a schema", eight)):
                _compare(name, measured, rounds)
    finally:
        service.close()


def _compare(name: str, measured: Callable[[bool], float], rounds: int) -> None:
    # The first rounds find graphs that are not tight yet.
    for _ in range(10):
        measured(True), measured(False)
    pairs = [(measured(True), measured(False)) for _ in range(rounds)]
    ratios = sorted(with_it / without for with_it, without in pairs)
    times = [statistics.median(column) for column in zip(*pairs, strict=True)]
    print(
        f"{name}: {times[0]:.2f} ms a token with, {times[1]:.2f} without; ratio "
        f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
        flush=True,
    )


def _with_byte_strings() -> Path:
    """GPT-2 small with a tokenizer of all bytes and of strings as long as a real one's."""
    directory, weights = BUILD / "gpt2-small-bytes", BUILD / "gpt2-small"
    make_checkpoint(weights)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (directory / name).hardlink_to(weights / name)
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    rng = random.Random(0)
    texts = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()))
    while len(texts) < VOCABULARY - 1:
        word = "".join(rng.choices(string.ascii_letters, k=rng.randrange(2, 8)))
        texts[rng.choice(["", "Ġ"]) + word] = None
    texts["<|endoftext|>"] = None
    made = Tokenizer(models.BPE({text: token for token, text in enumerate(texts)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"})
    )
    return directory


if __name__ == "__main__":
    sys.exit(main())
