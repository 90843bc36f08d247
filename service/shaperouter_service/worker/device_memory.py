"""The memory for weights and caches: the GPU's if there is one, else the host's."""

import sys

import tensorflow as tf

from shaperouter_service.models import DeviceKind
from shaperouter_service.system.available_memory import available_memory
from shaperouter_service.system.gpu_memory import gpu_memory


def device_memory_left() -> int:
    """Bytes that further weights and caches can take on this worker's device.

    A worker has its GPU for itself. If the driver does not tell its size, anything seems to fit.
    """
    if DeviceKind.present() is DeviceKind.CPU:
        return available_memory()
    size = gpu_memory()
    if size is None:
        return sys.maxsize
    return size - int(tf.config.experimental.get_memory_info("GPU:0")["current"])
