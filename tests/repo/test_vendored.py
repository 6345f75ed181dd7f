"""The vendored library is the pinned file of its package, with its licence beside it."""

import hashlib
import re

from tests.helpers.project import ROOT

VENDOR = ROOT / "toolkit" / "page" / "vendor"
SHA256 = "7f751ea7f1695a56c55845e4415b8ce7d65620b10a15bf1ea806f70af10f97f2"


def test_dagre_is_the_pinned_file() -> None:
    assert hashlib.sha256((VENDOR / "dagre.min.js").read_bytes()).hexdigest() == SHA256


def test_its_licence_lies_beside_it() -> None:
    text = (VENDOR / "LICENSE.dagre").read_text(encoding="utf-8")
    assert "Permission is hereby granted" in text and "Chris Pettitt" in text


def test_make_vendor_fetches_the_version_of_the_decision() -> None:
    (version,) = re.findall(r"^DAGRE := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"`@dagrejs/dagre` {version}" in (ROOT / "docs" / "decisions.md").read_text()
