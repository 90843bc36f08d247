"""The memory of the GPU of this process, asked from NVIDIA's driver."""

import ctypes


def gpu_memory() -> int | None:
    """Size of the memory of the first GPU that CUDA_VISIBLE_DEVICES leaves, in bytes.

    Returns:
        None if there is no driver, or it does not tell.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, size = ctypes.c_int(), ctypes.c_size_t()
    # Each returns 0 if it succeeds. None of them takes memory on the GPU.
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    )
    return None if failed else size.value
