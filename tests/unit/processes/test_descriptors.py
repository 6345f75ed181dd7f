"""The standard streams around code that closes or redirects them."""

import os
from pathlib import Path

from ctk.toolkit.processes.descriptors import keep_standard_streams

OPEN = Path("/proc/self/fd")


def places() -> list[Path]:
    return [(OPEN / str(number)).readlink() for number in (0, 1, 2)]


def test_what_is_closed_or_redirected_comes_back(tmp_path: Path) -> None:
    before, count = places(), len([*OPEN.iterdir()])
    with keep_standard_streams():
        os.close(1)
        file = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 2)
        assert file == 1 and places() != before
    assert places() == before
    assert len([*OPEN.iterdir()]) == count
