"""The exit code of `ctk run`: 1 for a failure, the script's own, 125 if nothing was compared."""

from pathlib import Path

import pytest

from tests.helpers.cli import ctk, write

COMPILES = "import sys, torch\nf = torch.compile(lambda x: x + 1, backend='eager')\n"
CALLS = COMPILES + "f(torch.ones(2))\n"
WRONG = """
import sys, torch
def wrong(gm, inputs):
    return lambda *args: tuple(value + 1 for value in gm(*args))
torch.compile(lambda x: x + 1, backend=wrong)(torch.ones(2))
"""


@pytest.mark.parametrize(
    ("text", "code", "first"),
    [
        (CALLS, 0, "no failure: 1 graph compiled, 1 call compared with eager"),
        (CALLS + "sys.exit(3)", 3, "exited with 3; no compile failed, 1 call compared with eager"),
        (CALLS + "raise ValueError('no')", 1, "raised ValueError: no; no compile failed, 1 call"),
        (COMPILES, 125, "compiled nothing"),
        (COMPILES + "sys.exit(4)", 4, "exited with 4; no call was compared with eager"),
        (COMPILES + "f(torch.ones(2) if len(sys.argv) > 5 else 'text')", 1, "raised TypeError"),
        (COMPILES + "sys.exit()\nf(torch.ones(2))", 125, "compiled nothing"),
    ],
)
def test_exit_codes(text: str, code: int, first: str, tmp_path: Path) -> None:
    said = ctk("run", "--out", tmp_path / "dumps", write(tmp_path, "script.py", text))
    assert (said.code, first in said.first) == (code, True), said.out + said.err


def test_a_failure_wins_over_the_exit_code_of_the_script(tmp_path: Path) -> None:
    script = write(tmp_path, "script.py", WRONG + "sys.exit(3)")
    said = ctk("run", "--out", tmp_path / "dumps", "--on-failure", "warn", script, "--json")
    assert said.code == 1


def test_skipped_calls_are_counted_with_the_reason(tmp_path: Path) -> None:
    text = CALLS + "for _ in range(4):\n    f(torch.ones(2))\n"
    said = ctk("run", "--out", tmp_path / "d", "--calls", "2", write(tmp_path, "script.py", text))
    assert said.first == "no failure: 1 graph compiled, 2 of 5 calls compared with eager"
    assert "not compared: 3 calls: after the first 2 of a function (--calls)" in said.out


def test_later_calls_whose_graphs_are_compared_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTK_CHECK_EVERY", "2")
    script = write(tmp_path, "script.py", CALLS + "for _ in range(4):\n    f(torch.ones(2))\n")
    asked = ("run", "--out", tmp_path / "d", "--calls", "1", script)
    said = ctk(*asked)
    assert said.first == "no failure: 1 graph compiled, 3 of 5 calls compared with eager"
    why = "after the first of a function (--calls)"
    assert f"compared graph by graph only: 2 calls: {why}" in said.out
    assert f"not compared: 2 calls: {why}" in said.out
    monkeypatch.setenv("CTK_CHECK_WHEN", "loss>3")
    said = ctk(*asked)
    needs = "no result is a scalar, as loss>3 needs (CTK_CHECK_WHEN)"
    assert f"not compared: graph0: {needs}" in said.out


def test_a_compile_without_a_call_is_no_check(tmp_path: Path) -> None:
    raising = "def f(x):\n    y = x.sin()\n    return y[torch.tensor([7])]\n"
    text = f"import torch\n{raising}try:\n    torch.compile(f, backend='eager')(torch.ones(2))\n"
    text += "except Exception:\n    pass\n"
    said = ctk("run", "--out", tmp_path / "d", write(tmp_path, "script.py", text))
    assert said.code == 125, said.out
    assert said.first == "cannot tell: 1 graph compiled, no call compared with eager"
    assert "not compared: graph0: the graph itself raises in eager (IndexError" in said.out
    assert "next: call each compiled function in" in said.out


def test_a_missing_module_is_a_usage_error(tmp_path: Path) -> None:
    assert ctk("run", "-m", "no_such_module_at_all").code == 2
