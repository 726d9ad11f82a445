"""A bound on work that hostile text must not make explode."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def processor_time(at_most: float) -> Iterator[None]:
    """Fails if the block takes more than `at_most` seconds of this thread's processor time.

    The bounds lie four times and more above what the work takes, so that a slow or shared machine keeps them, and far
    below what a pass takes whose time is the square of the text. How fast the work is, is a matter of the benchmarks.
    """
    began = time.thread_time()
    yield
    assert time.thread_time() - began < at_most
