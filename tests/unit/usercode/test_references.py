"""References: parsed, loaded, and the files that they need."""

from pathlib import Path

import pytest
import torch
from torch import fx

from ctk.compiler.errors import ConfigError, TargetError
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.usercode.references import Reference, files_of, load
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.targets import resolve_target


def test_parse():
    assert Reference.parse("my.passes:fold") == Reference("my.passes", "fold")
    assert Reference.parse("~/a b/fold.py:Rules.fold") == Reference("~/a b/fold.py", "Rules.fold")
    for text in ("inductor", "cuda:0", ":f", "a:", "a: b", "a b:f", "fold.py", "a:b:c", "1+1:x"):
        assert Reference.parse(text) is None, text


def test_load_starts_relative_paths_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "fold.py").write_text("class Rules:\n    first = 1\n")
    monkeypatch.chdir(tmp_path)
    assert load("fold.py:Rules.first") == 1
    assert load("math:pi") > 3


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nonsense", "target 'nonsense' is not MODULE:CALLABLE\nnext: write it as"),
        ("fould.py:run", "no such file: fould.py"),
        ("fould.py:run", "did you mean 'fold.py'?"),
        ("nowhere/fold.py:run", "(no folder nowhere either)"),
        ("fold.py:rum", "fold.py has no 'rum'; did you mean 'run'?"),
        ("math:sinn", "math has no 'sinn'; did you mean 'sin'?"),
        ("no_such_module:f", "next: add the folder of no_such_module to PYTHONPATH"),
        ("bad.py:f", "helper.py, line 2: VALUE = 1 / 0\nnext: see the whole traceback: python bad"),
        ("lost.py:f", "ModuleNotFoundError: No module named 'no_such_4711'\n  lost.py, line 1: "),
        ("syntax.py:f", "syntax.py, line 1: def ("),
        ("leaves.py:f", "SystemExit: 3\n  leaves.py, line 1: raise SystemExit(3)"),
    ],
)
def test_a_reference_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, said: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fold.py").write_text("def run(gm):\n    return gm\n")
    (tmp_path / "bad.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("\nVALUE = 1 / 0\n")
    (tmp_path / "lost.py").write_text("import no_such_4711\n")
    (tmp_path / "syntax.py").write_text("def (\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(TargetError) as raised:
        load(reference, kind="target", error=TargetError)
    assert said in str(raised.value)
    assert "ctk_folder_" not in str(raised.value)


USER = """
from helper import count
def custom(graph):
    import late_helper
    late_helper.seen.append(count(graph))
def backend(gm, inputs):
    import late_helper
    late_helper.seen.append(count(gm.graph))
    return gm.forward
def model():
    import late_helper
    late_helper.seen.append(0)
    return lambda x: x + 1
def inputs():
    import torch
    return torch.ones(2)
"""


def test_passes_targets_and_programs_import_their_neighbours(tmp_path: Path):
    (tmp_path / "mine.py").write_text(USER)
    (tmp_path / "helper.py").write_text("def count(graph):\n    return len(graph.nodes)\n")
    (tmp_path / "late_helper.py").write_text("seen = []\n")
    x, traced = torch.ones(2), fx.symbolic_trace(lambda x: x + 1)
    config = {"custom_passes": {"joint": [f"{tmp_path}/mine.py:custom"]}}
    assert torch.equal(compile_fx(traced, [x], config)(x), x + 1)
    target = resolve_target(f"{tmp_path}/mine.py:backend")
    assert torch.equal(target.compile(traced, [x], config={}, observer=None)(x), x + 1)
    assert load(f"{tmp_path}/late_helper.py:seen") == [3, 3]
    program = load_program(f"{tmp_path}/mine.py")
    assert torch.equal(program.model(*program.inputs), x + 1)


def test_a_custom_pass_says_its_line(tmp_path: Path):
    (tmp_path / "mine.py").write_text("\n1 / 0\n")
    config = {"custom_passes": {"joint": [f"{tmp_path}/mine.py:custom"]}}
    with pytest.raises(ConfigError, match=r"division by zero\n  mine\.py, line 2: 1 / 0"):
        compile_fx(fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)], config)


def test_files_of(tmp_path: Path):
    texts = {
        "fold.py": "import torch, helper\nfrom rules import linear\nfrom . import beside\n"
        "def f():\n    from rules.late import x\nimport queue, nowhere\n",
        "helper.py": "import again\n",
        "again.py": "import helper\n",
        "beside.py": "this is (no Python\n",
        "rules/__init__.py": "",
        "rules/linear.py": "from .base import *\nfrom ..helper import y\n",
        "rules/late.py": "",
        "rules/base.py": "",
        "rules/unused.py": "",
        "queue.py": "",
        "unused.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [path.relative_to(tmp_path).as_posix() for path in files_of(tmp_path / "fold.py")]
    assert found[0] == "fold.py"
    expected = set(texts) - {"rules/unused.py", "queue.py", "unused.py"}
    assert set(found) == expected and len(found) == len(expected)
