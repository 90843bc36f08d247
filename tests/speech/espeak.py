"""Speech of a known text: made by espeak-ng, which is installed where that is possible."""

import subprocess
from pathlib import Path

from harness.debian import have_programs

PROGRAM = "espeak-ng"
SENTENCES = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()

# Accents that small models understand about equally well.
VOICES = ("en-gb", "en-us", "en-gb-scotland")

# Words a minute: a little slower than espeak-ng's own, which is hard on small models.
SPEED = 150


def have_espeak() -> None:
    """Installs espeak-ng if it is not there; ends the program with a message if that fails."""
    have_programs({PROGRAM: PROGRAM}, "to make speech")


def say(text: str, path: Path, voice: str = VOICES[0]) -> None:
    """Writes a text as speech to a WAV file; a file that is there stays."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        command = [PROGRAM, "-v", voice, "-s", str(SPEED), "-w", str(partial), "--", text]
        subprocess.run(command, check=True)
        partial.rename(path)
