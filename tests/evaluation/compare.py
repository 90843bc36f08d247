"""Evaluates the embedded model with lm-eval, over HTTP and by Transformers, and compares both.

`make test-lm-eval` runs it. The service is a real one, and lm-eval its unmodified command, in an
environment of its own. The tasks beside this file have all kinds of requests that lm-eval makes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shaperouter_service
from harness.service import serving

TASKS = Path(__file__).parent / "tasks"
ROOT = Path(__file__).parents[2]
DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"
# Conversations can only be continued, so this is the task that both kinds of answers have.
GENERATED = ["shaperouter_continuations"]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
MAX_LENGTH = 512
# lm-eval keeps one token of the maximum for a new one, and one more before the windows of a text.
WINDOW = MAX_LENGTH - 2
# Tolerances for rounding of float32 in the log-likelihood of a text: absolute, and as a share.
NOISE, RELATIVE_NOISE = 1e-4, 1e-6


@dataclass(frozen=True, kw_only=True)
class Results:
    """What lm-eval has written.

    Attributes:
        metrics: The metrics of each task, without their standard errors.
        samples: The responses to each document, by task and number.
    """

    metrics: dict[str, dict[str, float]]
    samples: dict[tuple[str, int], Any]


def main() -> int:
    """Compares; the exit status is 1 if results differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lm-eval", type=Path, required=True, help="the command lm_eval")
    parser.add_argument("--work", type=Path, required=True, help="folder for results")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    chatting = _with_template(options.work / "chatting")
    address = f"tokenizer_backend=huggingface,max_length={MAX_LENGTH},num_concurrent=2"
    pairs = []
    with serving(f"--model=demo={DEMO}", f"--model=chatting={chatting}") as service:
        completions = evaluate(
            options.lm_eval,
            options.work / "completions",
            "local-completions",
            f"model=demo,base_url={service.http_url}/v1/completions,tokenizer={DEMO},{address}",
            tasks=_tasks(),
            batch=4,
        )
        chats = evaluate(
            options.lm_eval,
            options.work / "chats",
            "local-chat-completions",
            f"model=chatting,base_url={service.http_url}/v1/chat/completions,"
            f"tokenizer={chatting},{address}",
            "--apply_chat_template",
            tasks=GENERATED,
            batch=1,
        )
    by_transformers = f"dtype=float32,max_length={WINDOW},pretrained="
    expected = evaluate(
        options.lm_eval,
        options.work / "expected",
        "hf",
        f"{by_transformers}{DEMO}",
        "--device=cpu",
        tasks=_tasks(),
        batch=1,
    )
    pairs.append(("local-completions", completions, expected))
    expected = evaluate(
        options.lm_eval,
        options.work / "expected-chats",
        "hf",
        f"{by_transformers}{chatting}",
        "--device=cpu",
        "--apply_chat_template",
        tasks=GENERATED,
        batch=1,
    )
    pairs.append(("local-chat-completions", chats, expected))
    failed = False
    for name, served, by_it in pairs:
        differences = [*compare(served.metrics, by_it.metrics)]
        differences += compare(served.samples, by_it.samples)
        for difference in differences:
            print(f"{name}:{difference}", file=sys.stderr)
        for task, metrics in served.metrics.items():
            print(task, ", ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
        print(f"{name}: {len(served.samples)} documents, {len(differences)} differences")
        failed |= bool(differences) or not served.samples
    return int(failed)


def _with_template(directory: Path) -> Path:
    """A copy of the model that has a chat template."""
    shutil.copytree(DEMO, directory)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


def evaluate(
    command: Path,
    output: Path,
    model: str,
    arguments: str,
    *others: str,
    tasks: Sequence[str],
    batch: int,
) -> Results:
    """Runs tasks with a backend of lm-eval."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    subprocess.run(
        [
            command,
            f"--model={model}",
            f"--model_args={arguments}",
            f"--batch_size={batch}",
            f"--tasks={','.join(tasks)}",
            f"--include_path={TASKS}",
            f"--output_path={output}",
            "--log_samples",
            *others,
        ],
        # The tasks name their documents from here.
        cwd=ROOT,
        env={**os.environ, **offline, "HF_HOME": str(output.absolute() / "hub")},
        check=True,
    )
    (results,) = output.glob("*/results_*.json")
    content = json.loads(results.read_text(encoding="utf-8"))
    samples = {}
    for file in output.glob("*/samples_*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            task = file.name.removeprefix("samples_").rpartition("_")[0]
            samples[task, sample["doc_id"]] = sample["resps"]
    metrics = {
        task: {
            name: value
            for name, value in found.items()
            if isinstance(value, float) and "stderr" not in name
        }
        for task, found in content["results"].items()
    }
    return Results(metrics=metrics, samples=samples)


def compare(found: Any, expected: Any, at: str = "") -> list[str]:
    """The differences of two nested values; numbers, also in texts, may differ by rounding."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        return [d for key in found for d in compare(found[key], expected[key], f"{at} {key}")]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [d for index, pair in pairs for d in compare(*pair, f"{at}[{index}]")]
    try:
        difference = abs(float(found) - float(expected))
        is_equal = difference <= NOISE + RELATIVE_NOISE * abs(float(expected))
    except (TypeError, ValueError):
        is_equal = found == expected
    return [] if is_equal else [f"{at}: {found!r} over HTTP, {expected!r} by Transformers"]


def _tasks() -> list[str]:
    return sorted(f"shaperouter_{file.stem}" for file in TASKS.glob("*.yaml"))


if __name__ == "__main__":
    sys.exit(main())
