"""Releases of torch and Python: the oldest that is supported, and the newest that was tested.

`OLDEST_TRITON` is the release of Triton that torch 2.11 brings.
"""

import re
import sysconfig

OLDEST_SUPPORTED = "2.11"
OLDEST_TRITON = "3.6"
NEWEST_TESTED = "2.15.0"
OLDEST_PYTHON = "3.11"
NEWEST_TESTED_PYTHON = "3.15"

_STAGES = ("dev", "a", "b", "rc", "", "post")
_VERSION = re.compile(r"((?:\d+\.)*\d+)\.?(dev|a|b|rc|post|)(\d*)")


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `(2, 13, 0)` of `2.13.0+cpu` and of `2.13.0a0+git1`."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def order_of(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return a key that sorts versions: 2.16.0.dev20261102, 2.16.0rc1, 2.16.0, 2.16.0.post1.

    `2.16` and `2.16.0+cpu` have the key of `2.16.0`.
    """
    found = _VERSION.match(version)
    numbers = release_of(version)
    while numbers[-1:] == (0,):
        numbers = numbers[:-1]
    stage, count = (found[2], found[3]) if found else ("", "")
    return numbers, _STAGES.index(stage), int(count or 0)


def is_supported_python(version: str) -> bool:
    """Return whether a version of Python is at least the oldest that is supported."""
    return release_of(version) >= release_of(OLDEST_PYTHON)


def is_tested_python(version: str) -> bool:
    """Return whether a version of Python is not newer than the newest that the tests ran on."""
    return release_of(version)[:2] <= release_of(NEWEST_TESTED_PYTHON)


def has_gil() -> bool:
    """Return whether this Python is built with the global interpreter lock."""
    return not sysconfig.get_config_var("Py_GIL_DISABLED")


def is_supported(version: str) -> bool:
    """Return whether a version of torch is at least the oldest that is supported."""
    return release_of(version) >= release_of(OLDEST_SUPPORTED)


def is_tested(version: str) -> bool:
    """Return whether a version of torch is not newer than the newest that the tests ran on."""
    return release_of(version) <= release_of(NEWEST_TESTED)
