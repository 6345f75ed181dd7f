"""The order of releases, with the parts that only releases before a final one have."""

import itertools

import pytest
from packaging.version import Version

from ctk.compiler.torch_compat.versions import is_supported, is_tested, order_of

RELEASES = (
    "2.9.1", "2.11.0", "2.15.0a0", "2.15.0b2", "2.15.0rc1", "2.15.0rc10", "2.15.0", "2.15.0.post1",
    "2.15.1", "2.16.0.dev20261101", "2.16.0.dev20261102", "2.16.0",
)  # fmt: skip


def test_releases_sort_as_pip_sorts_them() -> None:
    for one, other in itertools.product(RELEASES, repeat=2):
        assert (order_of(one) < order_of(other)) == (Version(one) < Version(other))


@pytest.mark.parametrize("version", ["2.15", "2.15.0+cpu", "2.15.0.0"])
def test_one_release_has_one_key(version: str) -> None:
    assert order_of(version) == order_of("2.15.0")


def test_a_build_before_a_release_counts_as_that_release() -> None:
    assert is_supported("2.11.0a0+git1")
    assert is_tested("2.15.0.dev20260901+cpu")
    assert not is_tested("2.16.0.dev20261101")
