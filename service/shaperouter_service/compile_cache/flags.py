"""How TensorFlow must be started for executables to be kept.

It reads these variables when it is imported, so this module comes before it.
"""

import os

# In TensorFlow's own file system, which is in memory; see `graphs.staging`.
DIRECTORY = "ram://shaperouter"

_FLAG = f"--tf_xla_persistent_cache_directory={DIRECTORY}"


def set_flags() -> None:
    """Sets the variables for this process."""
    others = os.environ.get("TF_XLA_FLAGS", "")
    if _FLAG not in others:
        os.environ["TF_XLA_FLAGS"] = f"{others} {_FLAG}".strip()
    # Where it loads an executable, TensorFlow logs two errors that are none: it tries to read it as
    # text first, and takes preferences of XLA for features that the processor lacks. What really
    # fails is raised.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def is_set() -> bool:
    """Tells whether the variables are set."""
    return _FLAG in os.environ.get("TF_XLA_FLAGS", "")
