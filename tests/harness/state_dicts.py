"""Writes pytorch_model.bin as PyTorch does, which the tests' environment does not have."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

STORAGES = {"float16": "HalfStorage", "float32": "FloatStorage"}


def write_state_dict(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors into a file in the layout of PyTorch 1.6 and later."""
    state = [b"\x80\x02}"]
    with zipfile.ZipFile(path, "w") as archive:
        for key, (name, tensor) in enumerate(tensors.items()):
            strides = tuple(stride // tensor.itemsize for stride in tensor.strides)
            # PyTorch's names cannot be pickled where PyTorch is not.
            kind = f"ctorch\n{STORAGES[tensor.dtype.name]}\n".encode()
            storage = b"(" + _plain("storage") + kind + _plain(str(key)) + _plain("cpu")
            state += [
                _plain(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(",
                storage + _plain(tensor.size) + b"tQ",
                _plain(0) + _plain(tensor.shape) + _plain(strides) + b"\x89NtRs",
            ]
            archive.writestr(f"archive/data/{key}", tensor.tobytes())
        archive.writestr("archive/data.pkl", b"".join([*state, b"."]))


def _plain(value: object) -> bytes:
    """A pickled value, without the beginning and the end of a pickle."""
    return pickle.dumps(value, protocol=2)[2:-1]
