"""Tells, in each process of a service, how much memory malloc has given out, whenever it is asked.

The resident memory of a process also has what malloc holds back for later, which rises and falls by
tens of MiB. Only what is given out can leak.

Python imports this module at its start from a directory in PYTHONPATH. Asking is writing to a named
pipe of the process, `PID.ask` in HEAP_PROBE; the answer comes through `PID.answer`.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def _answer(ask: Path, answer: Path) -> None:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    while True:
        ask.read_text()
        info = mallinfo()
        used = info.uordblks + info.hblkhd
        answer.write_text(f"{used} {info.fordblks} {sys.getallocatedblocks()}")


if directory := os.environ.get("HEAP_PROBE"):
    pipes = [Path(directory, f"{os.getpid()}.{kind}") for kind in ("ask", "answer")]
    for pipe in pipes:
        os.mkfifo(pipe)
    threading.Thread(target=_answer, args=pipes, name="heap-probe", daemon=True).start()
