"""The pre-commit hook for rule files: a valid manifest, and run by pre-commit on a repository.

`pre-commit try-repo` would clone this repository; the hook is copied into a local one instead.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pre_commit.clientlib import load_manifest

from tests.helpers.project import ROOT

MANIFEST = ROOT / ".pre-commit-hooks.yaml"


def test_the_manifest_is_valid() -> None:
    (hook,) = load_manifest(str(MANIFEST))
    assert (hook["id"], hook["entry"]) == ("ctk-verify-rules", "ctk verify-rules")


@pytest.mark.parametrize(
    ("path", "is_checked"),
    [
        ("rules.py", True),
        ("src/my_rules.py", True),
        ("src/rules/fold.py", True),
        ("src/rules/__init__.py", False),
        ("tests/test_rules.py", False),
        ("src/model.py", False),
        ("rules.txt", False),
        ("overrules/x.py", False),
    ],
)
def test_it_runs_on_rule_files(path: str, is_checked: bool) -> None:
    (hook,) = load_manifest(str(MANIFEST))
    found = re.search(hook["files"], path) and not re.search(hook["exclude"], path)
    assert bool(found) == is_checked


@pytest.mark.slow
def test_pre_commit_refuses_a_wrong_rule_and_takes_a_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hook,) = yaml.safe_load(MANIFEST.read_text())
    hook["entry"] = f"'{Path(sys.executable).with_name('ctk')}' verify-rules --draws 40"
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    wrong = (ROOT / "tests/planted/rules/minus_zero.py").read_text()
    (tmp_path / "my_rules.py").write_text(wrong)
    (tmp_path / "model.py").write_text("x = 1\n")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    def check() -> subprocess.CompletedProcess[str]:
        run("git", "add", "-A")
        return run(sys.executable, "-m", "pre_commit", "run")

    run("git", "init", "-q")
    refused = check()
    assert refused.returncode == 1 and "x + 0 -> x" in refused.stdout, refused
    twice = "neg.default, (Op(aten.neg.default, (X,)),)"
    right = wrong.replace("x + 0", "-(-x)").replace("add.Tensor, (X, 0)", twice)
    (tmp_path / "my_rules.py").write_text(right)
    taken = check()
    assert taken.returncode == 0 and "Passed" in taken.stdout, taken
    (tmp_path / "my_rules.py").unlink()
    assert "no files to check" in check().stdout
