"""The grammar process: makes a grammar of the constraint in each line of its standard input."""

import contextlib
import json
import resource
import sys
import threading
import traceback
from pathlib import Path

from shaperouter_service.text.constraints import ConstraintError, grammar_of

# Maximum bytes that it may allocate; grammars that can be used take some 20 MB.
MAX_BYTES = 512 * 2**20
# Bytes of the stack. A worker follows the grammar with twice as much, so what can be made here
# cannot overflow there.
STACK_BYTES = 4 * 2**20


def main(max_seconds: int) -> None:
    """Answers until its input ends.

    Args:
        max_seconds: Maximum CPU seconds for one constraint.
    """
    for line in sys.stdin:
        _limit(resource.RLIMIT_CPU, _seconds() + max_seconds)
        sys.stdout.write(json.dumps(_answer(*json.loads(line))) + "\n")
        sys.stdout.flush()


def _limit(kind: int, value: int) -> None:
    """Lowers a limit of this process, as far as the system has not done so."""
    _, hard = resource.getrlimit(kind)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))


def _seconds() -> int:
    """CPU seconds that this process has used, rounded up."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_utime + usage.ru_stime) + 1


def _bytes() -> int:
    """Bytes of address space that this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _answer(
    name: str, value: str | list[str], drops_first_space: bool, calls: str
) -> dict[str, str]:
    given = value if isinstance(value, str) else tuple(value)
    try:
        grammar = grammar_of(name, given, drops_first_space=drops_first_space, calls=calls)
        return {"grammar": grammar}
    except ConstraintError as error:
        return {"rule": str(error), "path": error.path}
    # A defect of ours or of llguidance. The router raises it again, so that it is logged and the
    # request fails with INTERNAL; if it ended this process, it would look like a lack of memory.
    except Exception:
        return {"defect": traceback.format_exc()}


if __name__ == "__main__":
    _limit(resource.RLIMIT_AS, _bytes() + MAX_BYTES)
    # Where memory runs out, the system is to end this process and not the router.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    # A constraint that ends this process says nothing in a core file.
    _limit(resource.RLIMIT_CORE, 0)
    # The main thread's stack is as large as the system allows.
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=main, args=(int(sys.argv[1]),), daemon=True)
    thread.start()
    thread.join()
