"""Makes the blocking client from the one for asyncio, or checks that they match.

The client is written once, in the modules of `SOURCES`. What differs between gRPC's two APIs is in
_async_connection.py and _connection.py, which are both written by hand.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "shaperouter"
SOURCES = (
    "_async_base_client.py",
    "_async_client.py",
    "_async_inference_calls.py",
    "_async_repeated_call.py",
    "_async_repository_calls.py",
    "_async_streams.py",
    "_async_transcription_calls.py",
)
RUFF = Path(sys.executable).parent / "ruff"

# Patterns and what replaces them, in docstrings, too.
REPLACEMENTS = (
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\baiter\(", "iter("),
    (r"__a(enter|exit|next)__", r"__\1__"),
    (r"\bgrpc\.aio\b", "grpc"),
    (r"Async(?=[A-Z])", ""),
    (r"async_", ""),
)


def blocking(source: Path) -> str:
    """The blocking form of a module."""
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    text = f"# Generated from {source.name} by `make blocking-client`. Do not edit.\n\n{text}"
    for command in (["check", "--fix", "--select=I"], ["format"]):
        ruff = [RUFF, *command, "--quiet", f"--stdin-filename={target(source)}", "-"]
        text = subprocess.run(ruff, input=text, text=True, capture_output=True, check=True).stdout
    return text


def target(source: Path) -> Path:
    """The file of the blocking form."""
    return source.with_name(source.name.replace("_async", ""))


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only tell whether they match")
    check = parser.parse_args().check
    for source in (PACKAGE / name for name in SOURCES):
        path = target(source)
        if not check:
            path.write_text(blocking(source), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != blocking(source):
            sys.exit(f"{path.name} does not match {source.name}: run make blocking-client")


if __name__ == "__main__":
    main()
