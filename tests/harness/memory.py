"""The memory of processes."""

import psutil


def private_mebibytes(process: psutil.Process) -> float:
    """The memory that only this process has, in MiB.

    Pages of files are not part of it: the kernel frees and reads them as it likes, which looks like
    growth, and only private memory can leak.
    """
    memory = process.memory_info()
    return float(memory.rss - memory.shared) / 2**20
