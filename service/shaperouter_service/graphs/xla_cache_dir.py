"""An in-memory directory where TensorFlow stores the executables that XLA compiles.

TensorFlow can persist XLA's executables in a directory. But a graph fails if TensorFlow cannot
write there, and keeps failing if it finds a damaged file. So TensorFlow gets a directory in memory,
and `place` and `take` move executables between that and the compile cache.
"""

import threading
from dataclasses import dataclass

import tensorflow as tf

from shaperouter_service.compile_cache.flags import DIRECTORY, flags_are_set

# The function's name is among these first bytes of a file.
_HEAD_BYTES = 4096

# Held while files are added or removed: no thread may open a file that another has just removed.
_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Executable:
    """An executable that XLA has compiled, as TensorFlow writes it.

    Attributes:
        file: TensorFlow's name of the file: hashes of the function and of its code.
        content: Content of the file.
    """

    file: str
    content: bytes


def available() -> bool:
    """Returns whether TensorFlow was started with flags that make it store executables."""
    return flags_are_set()


def place(executable: Executable) -> None:
    """Stores an executable where TensorFlow finds it when it compiles the function."""
    with _lock, tf.io.gfile.GFile(f"{DIRECTORY}/{executable.file}", "wb") as file:
        file.write(executable.content)


def take(function: str) -> list[Executable]:
    """Removes and returns the executables of a function, given TensorFlow's name of it."""
    if not available():
        return []
    found = []
    with _lock:
        for name in tf.io.gfile.listdir(DIRECTORY) if tf.io.gfile.exists(DIRECTORY) else []:
            # Files that TensorFlow is still writing have another suffix.
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
