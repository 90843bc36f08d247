"""A process whose threads cannot begin ends, because nothing else would end its waiting."""

import subprocess
import sys

from shaperouter_service.system.process import EXIT_DEFECT

# As without memory, a thread fails before it says that it has begun.
SCRIPT = """
import signal, threading
from shaperouter_service.system import process

process.BEGIN_SECONDS = 1.0
process.exit_if_threads_cannot_begin()
signal.alarm(30)

def fail(self):
    raise MemoryError

threading.Thread(target=print, args=["one that begins"]).start()
threading.Thread._bootstrap_inner = fail
threading.Thread(target=print).start()
"""


def test_a_process_ends_rather_than_wait_for_a_thread_that_cannot_begin() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=False)
    assert ended.returncode == EXIT_DEFECT
    assert b"one that begins" in ended.stdout
    assert b"a thread could not begin" in ended.stdout
