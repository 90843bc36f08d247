"""The directory where TensorFlow keeps what XLA compiled: in this process's memory.

TensorFlow can keep what XLA has compiled in a directory. But it fails a graph if it can't write
there, and for ever if it finds a damaged file. So it is given a directory in memory, and the
executables go between that and the compile cache by way of `place` and `take`.
"""

import threading
from dataclasses import dataclass

import tensorflow as tf

from shaperouter_service.compile_cache.flags import DIRECTORY, flags_are_set

# Of a file, the function's name is among the first of these.
_HEAD_BYTES = 4096

# Held wherever files come and go, so that one thread never opens what another has just taken.
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Executable:
    """What XLA has compiled, as TensorFlow writes it.

    Attributes:
        file: What TensorFlow calls the file: hashes of the function and of its code.
        content: Of the file.
    """

    file: str
    content: bytes


def available() -> bool:
    """Whether TensorFlow was started so that it leaves executables."""
    return flags_are_set()


def place(executable: Executable) -> None:
    """Puts an executable where TensorFlow finds it when it compiles the function."""
    with _lock, tf.io.gfile.GFile(f"{DIRECTORY}/{executable.file}", "wb") as file:
        file.write(executable.content)


def take(function: str) -> list[Executable]:
    """Removes and returns the executables of a function, by TensorFlow's name of it."""
    if not available():
        return []
    found = []
    with _lock:
        for name in tf.io.gfile.listdir(DIRECTORY) if tf.io.gfile.exists(DIRECTORY) else []:
            # While TensorFlow writes, the name ends otherwise.
            if not name.endswith(".pb"):
                continue
            path = f"{DIRECTORY}/{name}"
            with tf.io.gfile.GFile(path, "rb") as file:
                if f"{function}[".encode() not in file.read(_HEAD_BYTES):
                    continue
                file.seek(0)
                found.append(Executable(file=name, content=file.read()))
            tf.io.gfile.remove(path)
    return found
