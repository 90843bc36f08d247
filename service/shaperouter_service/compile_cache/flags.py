"""Environment variables that make TensorFlow keep its executables.

TensorFlow reads them when it is imported, so this module must be used before.
"""

import os

# A directory in TensorFlow's own file system, which is in memory; see `graphs.xla_cache_dir`.
DIRECTORY = "ram://shaperouter"

_FLAG = f"--tf_xla_persistent_cache_directory={DIRECTORY}"


def set_flags() -> None:
    """Sets the variables in this process."""
    others = os.environ.get("TF_XLA_FLAGS", "")
    if _FLAG not in others:
        os.environ["TF_XLA_FLAGS"] = f"{others} {_FLAG}".strip()
    # When it loads an executable, TensorFlow logs two errors that are none: it tries to read it as
    # text first, and takes preferences of XLA for features that the processor lacks. Real failures
    # raise exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def flags_are_set() -> bool:
    """Whether the variables are set."""
    return _FLAG in os.environ.get("TF_XLA_FLAGS", "")
