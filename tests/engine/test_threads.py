"""Threads that use TensorFlow."""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import tensorflow as tf

from shaperouter_service.decoding import enter_thread


@contextmanager
def _no_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_new_thread_without_a_free_file_descriptor_gets_an_error_and_ends_no_process() -> None:
    with ThreadPoolExecutor(1) as thread:
        with _no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            thread.submit(enter_thread).result()
        thread.submit(enter_thread).result()


def test_a_prepared_thread_computes_without_a_free_file_descriptor() -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(enter_thread).result()
        with _no_descriptors():
            assert thread.submit(lambda: int(tf.constant(1) + 1)).result() == 2
