"""How much memory processes hold, and how much they may."""

import os
import subprocess
import sys

import pytest

from ctk.compiler.options.environment import parse_size
from ctk.toolkit.processes import memory

WRITES = """\
print(flush=True)
input()
block = b"x" * (64 << 20)
print(flush=True)
input()
"""


def test_what_a_process_holds_is_what_it_wrote() -> None:
    """In a process of its own: this one may have free memory in hand, from an earlier test."""
    with subprocess.Popen(
        [sys.executable, "-SE", "-c", WRITES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = memory.held_nbytes([child.pid])
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        after = memory.held_nbytes([child.pid])
        child.kill()
    assert 64 << 20 <= after - before <= 65 << 20


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
