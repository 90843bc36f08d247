"""Make the golden files: tiny checkpoints, and what the reference generates from them.

The reference is Transformers with PyTorch. The service needs neither, so this script runs in an
environment of its own (``requirements.txt`` beside it) and its output is committed.

Commands, run from anywhere::

    python tests/goldens/make_goldens.py checkpoints       # 1. draw the tiny checkpoints
    python tests/goldens/make_goldens.py expect DIRECTORY  # 2. write DIRECTORY's goldens
    python tests/goldens/make_goldens.py encoders          # both for the tiny text encoders
    python tests/goldens/make_goldens.py minilm DIRECTORY  # embeddings by all-MiniLM-L6-v2
    python tests/goldens/make_goldens.py chat-templates    # prompts by published chat templates
    python tests/goldens/make_goldens.py all               # 1., then 2. for each tiny checkpoint
    python tests/goldens/make_goldens.py add DIRECTORY     # only the cases with new names

A directory with a tokenizer gets text prompts; one without gets random token ids. The modules of
``reference`` define the cases and explain why they are safe to compare with.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import transformers
from reference.chat_templates import expect_chat_templates
from reference.checkpoints import TINY_CHECKPOINTS, write_checkpoint
from reference.encoders import TINY_ENCODERS, expect_encoder, write_encoder
from reference.files import add, expect
from reference.minilm import expect_minilm
from reference.model import GoldenError
from reference.pickles import write_pickles
from reference.transcript_rules import expect_rules
from reference.whisper import TINY_WHISPERS, expect_whisper
from reference.whisper import write_checkpoint as write_whisper

GOLDENS = Path(__file__).resolve().parent


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit status is 1 if a golden would not be useful."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("checkpoints", help="draw the tiny checkpoints anew")
    one = commands.add_parser("expect", help="write the goldens of one checkpoint directory")
    one.add_argument("directory", type=Path, help="a checkpoint in the Hugging Face layout")
    one.add_argument("--output", type=Path, help="default: <its name>.json beside this script")
    one.add_argument("--seed", type=int, default=0, help="of random prompts (default: 0)")
    more = commands.add_parser("add", help="add the cases that goldens lack")
    more.add_argument("directory", type=Path, help="a tiny or a built-in checkpoint")
    commands.add_parser("encoders", help="the tiny text encoders and their goldens")
    real = commands.add_parser("minilm", help="embeddings of texts by all-MiniLM-L6-v2")
    real.add_argument("directory", type=Path, help="the model")
    commands.add_parser("chat-templates", help="prompts by published chat templates")
    commands.add_parser("all", help="the tiny checkpoints and their goldens")
    options = parser.parse_args(arguments)

    # One thread adds in one order: two runs give the same bits.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # Its warnings and progress bars are of no use here.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        match options.command:
            case "expect":
                default = GOLDENS / f"{options.directory.resolve().name}.json"
                expect(options.directory, options.output or default, options.seed)
            case "add":
                add(options.directory, GOLDENS / f"{options.directory.resolve().name}.json")
            case "minilm":
                expect_minilm(options.directory, GOLDENS)
            case "chat-templates":
                expect_chat_templates(GOLDENS)
            case "encoders":
                write_encoders()
            case "checkpoints":
                write_checkpoints()
            case "all":
                write_checkpoints()
                write_all()
    except GoldenError as error:
        print(f"make_goldens: {error}", file=sys.stderr)
        return 1
    return 0


def write_checkpoints() -> None:
    """Draw the tiny checkpoints anew."""
    for checkpoint in TINY_CHECKPOINTS:
        write_checkpoint(checkpoint, GOLDENS)
    for whisper in TINY_WHISPERS:
        write_whisper(whisper, GOLDENS)


def write_all() -> None:
    """Write the goldens of the tiny checkpoints, and all else that needs no other model."""
    for checkpoint in TINY_CHECKPOINTS:
        expect(GOLDENS / checkpoint.name, GOLDENS / f"{checkpoint.name}.json", seed=0)
    for whisper in TINY_WHISPERS:
        expect_whisper(whisper, GOLDENS)
    write_encoders()
    expect_chat_templates(GOLDENS)
    expect_rules(GOLDENS / "transcript-rules.json")
    write_pickles(GOLDENS / "pickles")


def write_encoders() -> None:
    """Create the tiny text encoders again, and write their goldens."""
    for encoder in TINY_ENCODERS:
        write_encoder(encoder, GOLDENS)
        expect_encoder(encoder, GOLDENS)


if __name__ == "__main__":
    sys.exit(main())
