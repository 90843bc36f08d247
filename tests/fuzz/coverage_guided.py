"""Searches for inputs that a parser neither reads nor refuses, guided by coverage.

    python coverage_guided.py PARSER SECONDS

A crash, another error than a refusal, more than a second or a growing memory is a defect: Atheris
then writes the input to build/fuzz and exits with an error. Inputs with new coverage are collected
there, too; `--keep` adds the smallest of them to the corpus.
"""

import argparse
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["shaperouter_service"]):
    from fuzz.parsers import CORPUS, PARSERS

BUILD = Path(__file__).parents[2] / "build" / "fuzz"
# Longer inputs are slower, and show little that shorter ones do not.
MAX_BYTES, MAX_MEGABYTES = 4096, 4096


def main() -> None:
    """Runs one parser."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parser", choices=sorted(PARSERS))
    options.add_argument("seconds", type=int)
    options.add_argument("--keep", action="store_true", help="minimize the corpus and keep it")
    given = options.parse_args()
    found, kept = BUILD / given.parser, CORPUS / given.parser
    for directory in (found, kept):
        directory.mkdir(parents=True, exist_ok=True)
    arguments = [
        f"-max_len={MAX_BYTES}",
        f"-rss_limit_mb={MAX_MEGABYTES}",
        f"-artifact_prefix={found.parent}/{given.parser}-",
        "-timeout=1",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    if given.keep:
        arguments += ["-merge=1", str(kept), str(found)]
    else:
        arguments += [f"-max_total_time={given.seconds}", str(found), str(kept)]
    # Imports what the parser needs, which takes longer than an input may.
    for path in kept.iterdir():
        PARSERS[given.parser](path.read_bytes())
    atheris.Setup([sys.argv[0], *arguments], PARSERS[given.parser])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
