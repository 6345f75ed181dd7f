"""Notes from one half to the other."""

import os
from pathlib import Path

from ctk.toolkit.processes.link import Link, Notes, Work, find_link


def test_notes_arrive_in_order_and_halves_of_lines_wait() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    link, notes = Link(writing), Notes()
    link.note_started("minify", as_json=True)
    link.note_resumable("/out", "ctk minify …")
    link.note_asking("check.py:fails")
    link.note_work("/case", Work("compiling it", "ctk diagnose /case"))
    os.write(writing, b'{"answered"')
    notes.read(reading)
    assert (notes.command, notes.as_json, notes.exit_code) == ("minify", True, None)
    assert (notes.resumable, notes.works) == (
        "/out",
        {"/case": Work("compiling it", "ctk diagnose /case")},
    )
    assert notes.asking == "check.py:fails"
    os.write(writing, b": 1}\n")
    link.note_asking("")
    link.note_work("/case", Work(""))
    notes.read(reading)
    assert (notes.exit_code, notes.works) == (1, {"/case": Work("")})
    assert notes.asking == ""
    os.close(reading)
    link.note_answered(0)  # nobody listens, and nothing happens
    os.close(writing)


def test_signs_of_life_are_told_now_and_then() -> None:
    reading, writing = os.pipe()
    link = Link(writing)
    for _ in range(10_000):
        link.note_alive()
    assert len(os.read(reading, 1 << 16)) < 1 << 10
    os.close(reading)
    os.close(writing)


def test_a_process_without_a_supervisor_has_no_link(tmp_path: Path) -> None:
    assert find_link() is None
