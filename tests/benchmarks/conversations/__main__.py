"""Measures conversations, and reports the results.

Writes build/bench/conversations.json; with --publish also docs/conversations.json and its section
in docs/measurements.md.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from load.contestant import GPT2_SMALL, GPT2_TINY

from common.conditions import conditions
from common.files import write_figures
from common.paths import DOCS, REPOSITORY, WORK
from common.processes import PeerError
from common.publishing import publish_section
from common.terminal import console, telling

from .contestants import TALKERS
from .figures import Answered
from .measuring import Settings, measure
from .report import tables
from .script import (
    ANSWER_TOKENS,
    MAX_LENGTH,
    MAX_THINK,
    MAX_USER_TOKENS,
    MIN_THINK,
    MIN_USER_TOKENS,
    SYSTEM_TOKENS,
)

RESULT = WORK / "conversations.json"
HEADING = "## Conversations (`make bench-conversations`)"
BEFORE = "## Steps that check proposals"


def main() -> int:
    """Runs the benchmark."""
    arguments = _arguments()
    WORK.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        _measure(arguments)
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    found = tables(
        {
            name: [[Answered(**turn) for turn in turns] for turns in rounds]
            for name, rounds in result["rounds"].items()
        }
    )
    for table in found:
        table.show(console)
    console.print(f"Raw figures: {RESULT.relative_to(REPOSITORY)}", style="dim")
    if arguments.publish:
        complete = len(result["rounds"]) == len(TALKERS)
        if result["model"] != GPT2_SMALL.name or not complete:
            console.print("Not published, because the result is not complete.")
            return 1
        shutil.copyfile(RESULT, DOCS / "conversations.json")
        text = "\n\n".join([_conditions(result), *(table.markdown() for table in found)])
        publish_section(HEADING, f"{text}\n\n[Raw figures](conversations.json)", before=BEFORE)
        console.print("Published in docs/.")
    return 0


def _measure(arguments: argparse.Namespace) -> None:
    started = time.monotonic()
    model = GPT2_TINY if arguments.tiny else GPT2_SMALL
    settings = Settings(
        callers=arguments.callers,
        turns=arguments.turns,
        rounds=arguments.rounds,
        warm_ups=arguments.warm_ups,
        seed=arguments.seed,
    )
    found = conditions()
    names = arguments.contestant or [talker.entry.name for talker in TALKERS]
    with telling() as tell:
        tell("making the checkpoint, and converting it for CTranslate2")
        model.make()
        model.convert()
        talkers = [talker for talker in TALKERS if talker.entry.name in names]
        measured = measure(settings, model, talkers, tell)
    found["minutes"] = round((time.monotonic() - started) / 60, 1)
    told = {"model": model.name, "conditions": found, "settings": asdict(settings)}
    write_figures(told | asdict(measured), RESULT)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench-conversations", description=__doc__.splitlines()[0]
    )
    for name, value, what in (
        ("--callers", 8, "conversations at the same time"),
        ("--turns", 3, "measured turns of each caller in a round"),
        ("--rounds", 3, "rounds"),
        ("--warm-ups", 1, "rounds before these, with other conversations"),
        ("--seed", 0, "seed of the conversations"),
    ):
        parser.add_argument(
            name, type=int, default=value, metavar="N", help=f"{what} (default: {value})"
        )
    parser.add_argument(
        "--contestant",
        action="append",
        choices=[talker.entry.name for talker in TALKERS],
        help="who takes part; may be given several times (default: all)",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="serve a model of 2 layers, to test the benchmark"
    )
    parser.add_argument(
        "--report", action="store_true", help="report the last result without measuring"
    )
    parser.add_argument("--publish", action="store_true", help="publish a complete result in docs/")
    return parser.parse_args()


def _conditions(result: Mapping[str, Any]) -> str:
    found, settings = result["conditions"], result["settings"]
    return (
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB, load "
        f"{found['load_before']:.1f} before; {found['minutes']} minutes. {result['model']} with "
        f"random weights, in int8 (llama.cpp: Q8_0); {found['cores']} threads for each server, the "
        f"callers beside them. {settings['callers']} callers hold conversations, which begin with "
        f"the same {SYSTEM_TOKENS} tokens. Each turn adds {MIN_USER_TOKENS} to {MAX_USER_TOKENS} "
        f"tokens of the user to the whole history, and is answered with {ANSWER_TOKENS}, which "
        "become part of the history; a conversation ends when another turn would not fit into "
        f"{MAX_LENGTH:,} tokens. Between an answer and the next turn pass {MIN_THINK:g} to "
        f"{MAX_THINK:g} s. Everything is drawn from a seed and has the same lengths for all. "
        f"{settings['rounds']} rounds, each with {settings['turns']} turns of each caller and "
        "contestant in turn, after one turn that is not measured; conversations are of all lengths "
        f"from the start. Warm-up: {settings['warm_ups']} such rounds with other conversations."
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(f"make bench-conversations: {error}")
