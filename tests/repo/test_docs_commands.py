"""Every command in the documents is run, and every line shown below it must come out.

A document's ```console and ```python blocks run in order in one folder that holds a copy of
`examples/`, so that a later command can use what an earlier one wrote. In a console block a line
`$ command` is run by bash, with the lines `> ` that continue it; `# exits N` at its end is the
exit code that it must have (0 when absent); the lines below must appear in stdout or stderr in
that order, where `…` stands for any text. `make` targets are CI's own work: here they must only
exist. Blocks of another language (```sh) are for what cannot be run here, such as installing: the
options of `ctk` must exist.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from tests.helpers.project import ROOT, project_files
from tests.helpers.warm_python import warm_python

DOCUMENTS = [path for path in project_files() if path.suffix == ".md"]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXITS = re.compile(r"\s+# exits (\d+)$")
COMMAND_SECONDS = 240
PATH = (Path(sys.executable).parent, os.environ["PATH"])


@dataclass(frozen=True)
class Step:
    """One command of a document, its exit code, and the lines shown below it."""

    command: str
    exit_code: int = 0
    shown: tuple[str, ...] = ()
    language: str = "console"


def steps_of(text: str) -> list[Step]:
    steps: list[Step] = []
    for language, body in BLOCK.findall(text):
        if language == "python":
            steps.append(Step(body, language="python"))
            continue
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            line, *rest = part.rstrip("\n").split("\n")
            code = EXITS.search(line)
            more = [each[2:] for each in takewhile(lambda each: each.startswith("> "), rest)]
            command = "\n".join((EXITS.sub("", line), *more))
            shown = tuple(rest[len(more) :])
            steps.append(Step(command, int(code[1]) if code else 0, shown))
    return steps


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def check_make(command: str) -> None:
    named = {word for word in command.split()[1:] if "=" not in word}
    assert named <= make_targets(), f"{command}: no such target"


def run_step(step: Step, folder: Path) -> None:
    environment = dict(os.environ) | {
        "PATH": os.pathsep.join(map(str, (warm_python().parent, *PATH))),
        "COLUMNS": "200",
        "CTK_CACHE": "1",
        "CTK_CACHE_DIR": str(folder / "cache"),
    }
    shell = [warm_python(), "-c"] if step.language == "python" else ["bash", "-c"]
    done = subprocess.run(
        [*shell, step.command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    said = f"$ {step.command}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == step.exit_code, said
    assert_shown(step.shown, done.stdout + done.stderr, said)


def assert_shown(lines: tuple[str, ...], output: str, said: str) -> None:
    rest = output.splitlines()
    for line in (line for line in lines if line.strip() not in ("", "…")):
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.split("…")))
        hit = next((n for n, candidate in enumerate(rest) if pattern.search(candidate)), None)
        assert hit is not None, f"not in the output (in this order): {line}\n{said}"
        rest = rest[hit + 1 :]


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
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    for step in steps_of(document.read_text(encoding="utf-8")):
        if step.command.startswith("make"):
            check_make(step.command)
        else:
            run_step(step, tmp_path)


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
