"""Every command in the documents is run, and every line shown below it must come out.

A document's ```console and ```python blocks run in order in one folder, with a copy of `examples/`
if they name it, so that a later command can use what an earlier one wrote. In a console block a
line `$ command` is run by bash, with the lines `> ` that continue it; `# exits N` at its end is
the exit code that it must have (0 when absent); the lines below must appear in stdout or stderr in
that order, where `…` stands for any text. `make` targets are CI's own work: here they must only
exist. Blocks of another language (```sh) are for what cannot be run here, such as installing: the
options of `ctk` must exist. `docs/how-to/ecosystem.md` has tests of its own (tests/ecosystem).
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.document_steps import Step, assert_shown, run_step, steps_of
from tests.helpers.project import ROOT, project_files
from tests.helpers.warm_python import warm_python

DOCUMENTS = [
    path
    for path in project_files()
    if path.suffix == ".md" and path != ROOT / "docs" / "how-to" / "ecosystem.md"
]
NOT_RUN = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def check_make(command: str) -> None:
    named = {word for word in command.split()[1:] if "=" not in word}
    assert named <= make_targets(), f"{command}: no such target"


def test_steps_are_found() -> None:
    console = "$ ctk ls  # exits 1\nno … here\n$ cat <<E\n> x\n> E\nx\n"
    text = f"```console\n{console}```\n```python\nx = 1\n```\n"
    assert steps_of(text) == [
        Step("ctk ls", 1, ("no … here",)),
        Step("cat <<E\nx\nE", shown=("x",)),
        Step("x = 1\n", language="python"),
    ]


def test_missing_line_is_noticed() -> None:
    with pytest.raises(AssertionError, match="not in the output"):
        assert_shown(("b", "a"), "a\nb\n", "")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_of_document(document: Path, tmp_path: Path) -> None:
    steps = steps_of(document.read_text(encoding="utf-8"))
    if any("examples" in step.command for step in steps):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignore)
    for step in steps:
        if step.command.startswith("make"):
            check_make(step.command)
        else:
            run_step(step, tmp_path, (warm_python().parent, Path(sys.executable).parent))


def test_options_of_commands_that_are_not_run() -> None:
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    lines = (line for block in NOT_RUN.findall(text) for line in block.split("\n"))
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("ctk ")]
    assert commands
    for _, name, *words in commands:
        if name.startswith("-"):  # an option of `ctk` itself
            words, name = [name, *words], "ctk"
        shown = (ROOT / "tests" / "golden" / "cli_help" / f"{name}.txt").read_text(encoding="utf-8")
        assert {word for word in words if word.startswith("-")} <= set(shown.split()), name
