"""Keys of the compile cache: everything that the compiled graphs of a model depend on."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import shaperouter_service
from shaperouter_service import kernels
from shaperouter_service.compile_cache import CacheKey
from shaperouter_service.compile_cache.key import machine, processor
from shaperouter_service.models import DeviceKind, Model
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.system.devices import usable_cores

# Files and folders of the code that defines graphs. A test checks that the other modules that it
# imports do not affect graphs.
SOURCES = (
    "decoding",
    "generation/limits.py",
    "generation/option.py",
    "generation/option_table.py",
    "kernels",
    "models",
    "speech/audio/spectrum.py",
)


# The same for models that are called once.
CALL_SOURCES = (
    "decoding/lowering.py",
    "decoding/tf_internals.py",
    "functions",
    "kernels",
    "models",
)


def cache_key(model: Model) -> CacheKey:
    """Returns a model's key, which depends on its dimensions but not on its weights or name.

    It also depends on the dimensions of the draft model.
    """
    # Families are dataclasses of their dimensions.
    parts: dict[str, Any] = {
        "dimensions": dataclasses.asdict(model.family),
        "caches": model.cache_dtype.name,
    }
    if model.draft is not None:
        parts["draft"] = {"family": model.draft.name, **dataclasses.asdict(model.draft)}
    return _key(model, model.family.name, SOURCES, parts)


def call_cache_key(model: CallModel) -> CacheKey:
    """Returns the key of a model that is called once; see `cache_key`."""
    return _key(model, model.family, CALL_SOURCES, model.cache_parts)


def _key(
    model: Model | CallModel, family: str, sources: Sequence[str], parts: Mapping[str, Any]
) -> CacheKey:
    device = model.weights.device
    size = f"{model.parameters / 1e6:.0f}m"
    return CacheKey(
        label=f"{family}-{size}-{model.weight_dtype.name}-{device.lower()}",
        parts={
            "family": family,
            **parts,
            "dtype": model.dtype.name,
            "weights": {
                name: [weight.dtype.name, *weight.shape] for name, weight in model.weights.items()
            },
            # The version of the custom calls; graphs without packed weights have none.
            "kernels": kernels.VERSION if model.weights.is_packed else None,
            "code": _code(sources),
            "service": shaperouter_service.__version__,
            "tensorflow": [
                tf.version.VERSION,
                tf.version.GIT_VERSION,
                tf.version.COMPILER_VERSION,
            ],
            "flags": {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "TF_XLA_FLAGS")},
            # Graphs of a GPU run there, whatever the instructions and cores of the host.
            "processor": processor() if device is DeviceKind.CPU else machine(),
            # When XLA compiles for a CPU, it divides the work of a graph between the threads.
            "threads": _threads() if device is DeviceKind.CPU else None,
            "device": str(device),
            "clock": kernels.clock_platform(),
            "accelerators": [
                _details(accelerator) for accelerator in tf.config.list_physical_devices("GPU")
            ],
        },
    )


def _threads() -> int:
    """Number of threads that compute one graph on a CPU; 0 in TensorFlow means one per core."""
    return tf.config.threading.get_intra_op_parallelism_threads() or usable_cores()


def _details(device: Any) -> dict[str, str]:
    details = tf.config.experimental.get_device_details(device)
    return {name: str(value) for name, value in details.items()}


def _code(sources: Sequence[str]) -> str:
    """A digest of the sources."""
    digest = hashlib.blake2b(digest_size=16)
    root = Path(shaperouter_service.__file__).parent
    for source in sources:
        for path in sorted((root / source).rglob("*.py")) or [root / source]:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
