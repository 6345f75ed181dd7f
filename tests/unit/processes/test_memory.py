"""How much memory processes hold, and how much they may."""

import os
import subprocess
import sys

import pytest

from ctk.compiler.options.environment import parse_size
from ctk.toolkit.processes import memory


def test_what_a_process_holds_is_what_it_wrote() -> None:
    before = memory.held_nbytes([os.getpid()])
    block = bytearray(b"x") * (64 << 20)
    after = memory.held_nbytes([os.getpid()])
    assert 60 << 20 <= after - before <= 80 << 20
    assert len(block) == 64 << 20


def test_addresses_that_are_only_reserved_do_not_count() -> None:
    code = "import mmap\nm = mmap.mmap(-1, 1 << 33, flags=34)\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-SE", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert 0 < memory.held_nbytes([child.pid]) < 1 << 30
        child.kill()


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert memory.held_nbytes([2**22 + 1]) == 0


def test_the_default_is_a_part_of_what_is_free() -> None:
    limit = memory.default_limit_nbytes()
    assert limit is not None
    assert 1 << 30 <= limit < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_control_group_that_has_less_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_group_limits", lambda: [5 << 30])
    limit = memory.default_limit_nbytes()
    assert limit is not None
    assert limit <= 4 << 30


@pytest.mark.parametrize("nbytes", [1 << 30, 3 << 29, 300 << 20])
def test_sizes_are_written_as_they_are_read(nbytes: int) -> None:
    assert parse_size(memory.format_size(nbytes)) == nbytes
