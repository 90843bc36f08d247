"""What a grammar process runs: makes a grammar of each line of its standard input."""

import json
import resource
import sys
import threading
from pathlib import Path

from shaperouter_service.text.constraints import ConstraintError, grammar_of

# Maximum bytes that it may allocate; grammars that can be used take a hundredth.
MAX_BYTES = 2 * 2**30
# Bytes of the stack. A worker follows the grammar with twice as much, so what can be made here
# cannot overflow there.
STACK_BYTES = 4 * 2**20


def main(max_seconds: int) -> None:
    """Answers until its input ends.

    Args:
        max_seconds: Maximum seconds of the processor for one constraint.
    """
    for line in sys.stdin:
        _limit(max_seconds)
        sys.stdout.write(json.dumps(_answer(*json.loads(line))) + "\n")
        sys.stdout.flush()


def _limit(seconds: int) -> None:
    """Lets the system end this process if the next grammar takes too long."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    until = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))


def _limit_bytes() -> None:
    """Lets allocations beyond what the libraries have taken fail."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    until = pages * resource.getpagesize() + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (until, resource.RLIM_INFINITY))


def _answer(name: str, value: str | list[str], drops_first_space: bool) -> dict[str, str]:
    given = value if isinstance(value, str) else tuple(value)
    try:
        return {"grammar": grammar_of(name, given, drops_first_space=drops_first_space)}
    except ConstraintError as error:
        return {"rule": str(error), "path": error.path}


if __name__ == "__main__":
    _limit_bytes()
    # The main thread's stack is as large as the system allows.
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=main, args=(int(sys.argv[1]),), daemon=True)
    thread.start()
    thread.join()
