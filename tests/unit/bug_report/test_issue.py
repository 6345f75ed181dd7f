"""`ctk issue`: the whole text of a failure, and its refusals."""

import json
import shutil
from pathlib import Path

import pytest

from ctk.toolkit.bug_report.bug_report import bug_report
from ctk.toolkit.case.store import save_case
from ctk.toolkit.cli.commands.issue import answer_of
from ctk.toolkit.cli.shell.answer import ExitCode
from tests.helpers.cli import BROKEN_PASS, GOOD, ctk
from tests.helpers.hostile import Craft
from tests.unit.bug_report.test_short_script import relu_case

HOSTILE = "``` \n</details>\n@everyone <img src=x>\x1b[2J"


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagnosed")
    (folder / "net.py").write_text(GOOD + BROKEN_PASS)
    assert ctk("diagnose", folder / "net.py", "--out", folder / "out").code == 1
    return folder / "out"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_case(relu_case(), tmp_path / "case")


@pytest.mark.timeout(300)
def test_the_text_has_the_fields_of_the_form(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "issue.md"
    said = ctk("issue", folder, "--out", out, "--similar", "--json")
    assert said.code == 1
    assert said.data["title"] == "[inductor] relu: wrong result"
    assert said.data["is_short"] and said.data["shows"] and not said.data["is_pytorch"]
    body = out.read_text()
    assert body == said.data["body"]
    headings = [line for line in body.splitlines() if line.startswith("### ")]
    assert headings == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]
    assert "**This is not a bug of PyTorch**" in body and "```python\nimport torch\n" in body
    assert "`torch._dynamo.utils.same`: `False" in body
    assert "AssertionError: Tensor-likes are not close!" in body
    assert str(tmp_path) not in body


def test_a_case_of_ctk_attaches_its_full_repro(diagnosed: Path) -> None:
    out = diagnosed
    assert ctk("issue", out).code == 2  # its pass is code
    said = ctk("issue", out, "--trust")
    assert said.code == 1
    first, *lines = said.out.splitlines()
    assert first.startswith(
        "[ctk] negate_relu, relu: wrong result; not a bug of PyTorch: the guilty"
    )
    assert f"attach     {out / 'minimal' / 'repro.py'}" in lines
    assert "The repro is attached (`repro.py`, `sources`)" in said.out
    assert "FAILURE: accuracy" in said.out


def test_folders_without_a_failure_are_refused(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        assert ctk("issue", path).code == 2
    manifest = folder / "manifest.json"
    data = json.loads(manifest.read_text()) | {"signature": None}
    manifest.write_text(json.dumps(data))
    said = ctk("issue", folder)
    assert said.code == 2 and "records no failure" in said.err


def test_a_bisection_writes_no_case(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(GOOD + BROKEN_PASS)
    out = tmp_path / "out"
    assert ctk("bisect-pass", tmp_path / "net.py", "--out", out).code == 1
    said = ctk("issue", out)
    assert said.code == 2
    assert "bisect-pass writes none; next: ctk minify" in said.err


def test_a_strangers_program_does_not_run(diagnosed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(diagnosed, out)
    shutil.rmtree(out / "minimal")
    (out / "minimal").mkdir()
    (out / "minimal" / "program.py").write_text("raise SystemExit('it ran')\n")
    path = out / "diagnosis.json"
    data = json.loads(path.read_text())
    judgement = {"verdict": "reproduces", "signature": data["signature"], "detail": ""}
    whole = {"judgement": judgement, "layer": "dynamo", "target": "inductor", "backend": "eager"}
    path.write_text(json.dumps(data | {"end_to_end": whole}))
    said = ctk("issue", out)
    assert said.code == 2 and "not trusted, and its program would run" in said.err
    assert "it ran" not in said.err + said.out


@pytest.mark.timeout(300)
def test_hostile_text_stays_in_code(tmp_path: Path) -> None:
    craft = Craft.new(tmp_path)
    signature = {"kind": "runtime-error", "exception": "E", "message": HOSTILE.replace("\x1b", "")}
    craft.manifest(lambda data: data.update(signature=signature))
    said = ctk("issue", craft.folder)
    assert said.code in (2, 125)
    assert "\x1b" not in said.out


def test_a_failure_that_is_gone_is_not_to_be_filed(folder: Path) -> None:
    manifest = folder / "manifest.json"
    data = json.loads(manifest.read_text()) | {"config": {}}
    manifest.write_text(json.dumps(data))
    report = bug_report(folder, ablation_seconds=0.0)
    assert not report.repro.shows
    assert "did not show the failure again" in report.body
    answer = answer_of(report, None)
    assert answer.exit_code is ExitCode.CANNOT_TELL
    assert answer.headline.startswith(
        "cannot tell: it did not fail again: [inductor] relu: wrong result"
    )
    assert "gh issue create" not in "\n".join(map(str, answer.body))
