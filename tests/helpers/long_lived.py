"""A plugin of pytest: garbage collection leaves out the objects that live as long as the process.

A full collection visits every object of torch, its libraries and the tests: a second each, a third
of the processor time of a run. Frozen objects (`gc.freeze`) are not visited:

1. After the tests are collected: their modules, and all that these import. No collection before.
2. After a test in which a full collection ran: what is left of it, lazy imports and caches.

Never in a test: an object that it makes is collected as usual, `gc.collect()` included.
"""

import gc
from collections.abc import Generator

import pytest


class LongLivedObjects:
    def __init__(self) -> None:
        self._full_collections = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        gc.disable()
        try:
            return (yield)
        finally:
            self._freeze()
            gc.enable()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        if _count_full_collections() > self._full_collections:
            self._freeze()

    def pytest_unconfigure(self) -> None:
        gc.unfreeze()  # libraries report objects that are left when a process ends

    def _freeze(self) -> None:
        gc.collect()
        gc.freeze()
        self._full_collections = _count_full_collections()


def _count_full_collections() -> int:
    return gc.get_stats()[2]["collections"]
