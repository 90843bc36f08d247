"""Reader of pytorch_model.bin, which reads tensors and never runs code.

The file is a pickle, and a pickle can name any code to run. The unpickler here accepts only the few
names of a state dict, refuses all others, and never imports PyTorch. There are two
layouts (`_save` and `_legacy_save` in torch/serialization.py): a ZIP archive with one entry for
each storage, and, before PyTorch 1.6, a sequence of pickles followed by all storages.
"""

import collections
import io
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from shaperouter_service.errors import StartupError

# The first two pickles of a file in the older layout.
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001

# Maximum depth of tuples in tuples; a tensor's arguments have its shape in them. Python hashes and
# compares them by recursion, and hashing ones that are nested millions deep kills the process.
MAX_DEPTH = 8

# Types of storages by their class. NumPy has no bfloat16: its bits are read as integers.
BFLOAT16 = "BFloat16Storage"
STORAGES: Mapping[str, np.dtype[Any]] = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    BFLOAT16: np.dtype("<u2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("<i1"),
    "ByteStorage": np.dtype("<u1"),
    "BoolStorage": np.dtype("?"),
}


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The numbers of one or more tensors.

    Attributes:
        kind: Class of the storage, a key of `STORAGES`.
        key: Name in the file.
        size: Number of its elements.
    """

    kind: str
    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The location of a tensor in a storage; tensors of equal layouts are the same.

    Attributes:
        storage: Storage of its numbers.
        offset: Index of its first number in the storage.
        shape: Its dimensions.
        strides: Distance between neighbours in each dimension, in numbers of the storage.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def check(self) -> None:
        """Checks that a tensor lies within its storage and does not repeat its numbers.

        Raises:
            ValueError: It reaches beyond or repeats them.
        """
        numbers = (self.offset, self.storage.size, *self.shape, *self.strides)
        if len(self.shape) != len(self.strides) or not all(
            type(number) is int and number >= 0 for number in numbers
        ):
            raise ValueError(f"{self} is not a valid layout of a tensor")
        size = math.prod(self.shape)
        steps = zip(self.shape, self.strides, strict=True)
        last = self.offset + sum((length - 1) * stride for length, stride in steps)
        if size > self.storage.size or (size and last >= self.storage.size):
            raise ValueError(f"a tensor of shape {self.shape} reaches beyond its storage")


@dataclass(frozen=True, kw_only=True)
class StateDict:
    """The tensors of one file.

    Attributes:
        path: Path of the file, for messages.
        layouts: Layouts of the tensors, by name.
        raw: Reads the bytes of a storage.
    """

    path: Path
    layouts: Mapping[str, Layout]
    raw: Callable[[Storage], bytes]

    def tensor(self, layout: Layout) -> np.ndarray:
        """Reads one tensor, row by row in memory; bfloat16 becomes float32.

        Raises:
            StartupError: The file is damaged.
        """
        dtype = STORAGES[layout.storage.kind]
        try:
            raw = self.raw(layout.storage)
        # For a damaged archive, zipfile raises many errors, also RuntimeError and EOFError.
        except Exception as error:
            raise _unreadable(self.path, error) from error
        if len(raw) != layout.storage.size * dtype.itemsize:
            raise StartupError(
                f"{self.path}: is damaged: storage {layout.storage.key} must have "
                f"{layout.storage.size * dtype.itemsize} bytes, got {len(raw)}"
            )
        strided = np.lib.stride_tricks.as_strided(
            np.frombuffer(raw, dtype)[layout.offset :],
            layout.shape,
            [stride * dtype.itemsize for stride in layout.strides],
        )
        # NumPy's copies would keep the strides, and safetensors writes memory as it is.
        array = np.array(strided, order="C")
        if layout.storage.kind == BFLOAT16:
            # Its bits are the upper half of a float32.
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array


def read_state_dict(path: Path) -> StateDict:
    """Opens a state dict that `torch.save` wrote, without reading tensors.

    Raises:
        StartupError: The file cannot be read, is damaged, or contains other objects than tensors.
    """
    try:
        state, raw = (_open_archive if zipfile.is_zipfile(path) else _open_legacy)(path)
        if not isinstance(state, dict):
            raise TypeError(f"it must hold a state dict, got a {type(state).__name__}")
        for name, layout in state.items():
            if not isinstance(name, str) or not isinstance(layout, Layout):
                raise TypeError(f"{name!r} is not a tensor")
            layout.check()
    # A damaged pickle can raise any error.
    except Exception as error:
        raise _unreadable(path, error) from error
    return StateDict(path=path, layouts=state, raw=raw)


def _unreadable(path: Path, error: Exception) -> StartupError:
    return StartupError(f"{path}: cannot be read as tensors of PyTorch: {error}")


def _open_archive(path: Path) -> tuple[Any, Callable[[Storage], bytes]]:
    archive = zipfile.ZipFile(path)
    # All are in one folder, whose name is arbitrary.
    entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
    for entry in entries.values():
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{entry.filename} is compressed, which PyTorch never does")
    if "byteorder" in entries and archive.read(entries["byteorder"]) != b"little":
        raise ValueError("its numbers are not little-endian")
    state = _Unpickler(io.BytesIO(archive.read(entries["data.pkl"]))).load()
    return state, lambda storage: archive.read(entries[f"data/{storage.key}"])


def _open_legacy(path: Path) -> tuple[Any, Callable[[Storage], bytes]]:
    with path.open("rb") as file:
        if (_Unpickler(file).load(), _Unpickler(file).load()) != (LEGACY_MAGIC, LEGACY_PROTOCOL):
            raise ValueError("it was not written by torch.save")
        if not _Unpickler(file).load()["little_endian"]:
            raise ValueError("its numbers are not little-endian")
        unpickler = _Unpickler(file)
        state = unpickler.load()
        offsets = {}
        for key in _Unpickler(file).load():
            storage = unpickler.storages[key]
            size = int.from_bytes(file.read(8), "little")
            if size != storage.size:
                raise ValueError(f"storage {key} must have {storage.size} numbers, got {size}")
            offsets[key] = file.tell()
            file.seek(size * STORAGES[storage.kind].itemsize, io.SEEK_CUR)

    def raw(storage: Storage) -> bytes:
        with path.open("rb") as file:
            file.seek(offsets[storage.key])
            return file.read(storage.size * STORAGES[storage.kind].itemsize)

    return state, raw


def _skip_attributes(unpickler: Any) -> None:
    """Ignores attributes of objects, because a file could replace the check of a layout.

    PyTorch's state dicts have the attribute `_metadata`, which is not needed here.
    """
    unpickler.stack.pop()


def _bounding_depth(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Makes a tuple as `load` does, unless too many are nested in it."""

    def load_bounded(unpickler: Any) -> None:
        load(unpickler)
        made, depths = unpickler.stack[-1], unpickler.depths
        inner = (depths.get(id(each), 0) for each in made if isinstance(each, tuple))
        depths[id(made)] = depth = 1 + max(inner, default=0)
        if depth > MAX_DEPTH:
            raise pickle.UnpicklingError(f"tuples must be at most {MAX_DEPTH} deep, got {depth}")

    return load_bounded


class _Unpickler(pickle._Unpickler):
    """Builds a state dict of `Layout`s; any name but those of a state dict is an error.

    Uses Python's unpickler, because the one in C allocates memory for as many objects as a damaged
    file claims to have.

    Attributes:
        storages: Storages of the tensors, by key.
        depths: How deep each tuple is, by its `id`. One that reuses an `id` replaces its depth.
    """

    dispatch: ClassVar = {
        **pickle._Unpickler.dispatch,
        **{
            code[0]: _bounding_depth(pickle._Unpickler.dispatch[code[0]])
            for code in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)
        },
        pickle.BUILD[0]: _skip_attributes,
    }

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, Storage] = {}
        self.depths: dict[int, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return name
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which tensors do not need")
        return _NAMES[module, name]

    def persistent_load(self, reference: Any) -> Storage:
        # Then the older layout has None, or describes a view of another storage.
        tag, kind, key, _device, size, *view = reference
        if tag != "storage" or kind not in STORAGES or not isinstance(key, str) or any(view):
            raise pickle.UnpicklingError(f"{reference!r} is not a storage")
        storage = Storage(kind=kind, key=key, size=size)
        if self.storages.setdefault(key, storage) != storage:
            raise pickle.UnpicklingError(f"storage {key} is described twice")
        return storage


def _rebuild_tensor(storage: Storage, offset: int, shape: Any, strides: Any, *_: object) -> Layout:
    """Replaces PyTorch's function of this name, without gradients and hooks."""
    if not isinstance(storage, Storage):
        raise pickle.UnpicklingError("a tensor has no storage")
    return Layout(storage=storage, offset=offset, shape=tuple(shape), strides=tuple(strides))


def _rebuild_parameter(tensor: Layout, *_: object) -> Layout:
    return tensor


_NAMES: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
}
