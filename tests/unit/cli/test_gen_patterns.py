"""`ctk gen-patterns`."""

from pathlib import Path

import pytest

from ctk.compiler.passes.joint import fuse_attention
from tests.helpers.cli import ctk


def test_gen_patterns_says_which_files_are_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ctk.compiler.patterns import generated

    monkeypatch.setattr(generated, "FOLDER", tmp_path)
    few = fuse_attention.replacements()[:1]
    monkeypatch.setattr(fuse_attention, "replacements", lambda: few)
    assert ctk("gen-patterns", "--check").code == 1
    assert ctk("gen-patterns").code == 0
    assert ctk("gen-patterns", "--check").code == 0
