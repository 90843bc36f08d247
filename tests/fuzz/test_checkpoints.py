"""Mutated checkpoints are read or refused: no crash, no other error, no memory."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = int(os.environ.get("FUZZ_FILES", "100"))


@pytest.mark.timeout(1200)
def test_mutated_checkpoints_are_read_or_refused() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    done = subprocess.run(
        [sys.executable, "-m", "harness.hostile_checkpoints", str(seed), str(COUNT)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    outcomes = result["outcomes"]
    defects = {text: count for text, count in outcomes.items() if text not in ("read", "refused")}
    assert not defects, "\n".join(defects)
    assert outcomes["refused"] > COUNT / 4
    assert outcomes["read"] > COUNT / 20
    assert result["grown"] < 2**25
