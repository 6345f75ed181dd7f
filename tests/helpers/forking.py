"""Marks of tests that fork the process of the tests itself."""

import pytest

FORKS = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"
)
"""The other threads are those of torch, which are idle. Python 3.15 raises this from a fork."""
