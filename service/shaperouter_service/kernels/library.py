"""The native library: loads it and registers its kernels with XLA."""

import ctypes
import functools
import hashlib
import importlib.util
from pathlib import Path

# Version of the kernels' names, operands and layouts; the same number is in native/kernels.h.
VERSION = 14

LIBRARY = Path(__file__).with_name("libshaperouter_kernels.so")
# Suffix of the file beside it with its digest in hexadecimal. The digest is checked because a
# damaged library would crash the process that loads it.
DIGEST_SUFFIX = ".blake2b"

# The library of TensorFlow's wheel that contains XLA, and the function that returns the table of
# XLA's FFI: its declared C name, and its mangled C++ name, which is the one that wheels export.
_TENSORFLOW = "libtensorflow_cc.so.2"
_GET_API = ("XLA_FFI_GetApi", "_ZN3xla3ffi12GetXlaFfiApiEv")


class KernelsUnavailableError(Exception):
    """The library can't be used; the message says why."""


def digest(library: Path) -> str:
    """Returns the digest of the library's content."""
    return hashlib.blake2b(library.read_bytes()).hexdigest()


@functools.cache
def register(library: Path = LIBRARY) -> str:
    """Registers the library's kernels with XLA, once per process.

    Returns:
        The instruction set that they use on this processor.

    Raises:
        KernelsUnavailableError: The library is missing, damaged or of another version.
    """
    native = _loaded(library)
    version = int(native.shaperouter_kernels_version())
    if version != VERSION:
        raise KernelsUnavailableError(
            f"{library} has version {version}, but this service needs {VERSION}"
        )
    native.shaperouter_kernels_register.argtypes = [ctypes.c_void_p]
    native.shaperouter_kernels_register.restype = ctypes.c_char_p
    refusal = native.shaperouter_kernels_register(_xla_ffi())
    if refusal is not None:
        raise KernelsUnavailableError(f"{library} can't be used: {refusal.decode()}")
    native.shaperouter_kernels_name.restype = ctypes.c_char_p
    name: bytes = native.shaperouter_kernels_name()
    return name.decode()


def _loaded(library: Path) -> ctypes.CDLL:
    try:
        expected = Path(f"{library}{DIGEST_SUFFIX}").read_text(encoding="ascii").strip()
        if digest(library) != expected:
            raise KernelsUnavailableError(f"{library} is damaged")
        return ctypes.CDLL(str(library))
    except FileNotFoundError as error:
        raise KernelsUnavailableError(f"{error.filename} is missing: it was not built") from error
    except (OSError, UnicodeDecodeError) as error:
        raise KernelsUnavailableError(f"{library} can't be loaded: {error}") from error


def _xla_ffi() -> int:
    """Returns the address of XLA's FFI table, whose functions register kernels."""
    tensorflow = importlib.util.find_spec("tensorflow")
    if tensorflow is None or tensorflow.origin is None:
        raise KernelsUnavailableError("TensorFlow is not installed")
    path = Path(tensorflow.origin).with_name(_TENSORFLOW)
    try:
        exporter = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailableError(f"{path} can't be loaded: {error}") from error
    for name in _GET_API:
        if hasattr(exporter, name):
            get_api = exporter[name]
            get_api.restype = ctypes.c_void_p
            address: int = get_api()
            return address
    raise KernelsUnavailableError(f"{path} does not export XLA's FFI")
