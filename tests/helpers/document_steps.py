"""The blocks of a document as commands, for the tests that run them."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXITS = re.compile(r"\s+# exits (\d+)$")
COMMAND_SECONDS = 240


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


def run_step(step: Step, folder: Path, executables: Sequence[Path]) -> None:
    """Run one step in `folder`, with the programs of these folders before those of the system."""
    environment = dict(os.environ) | {
        "PATH": os.pathsep.join((*map(str, executables), os.environ["PATH"])),
        "COLUMNS": "200",
        "CTK_CACHE": "1",
        "CTK_CACHE_DIR": str(folder / "cache"),
    }
    shell = [executables[0] / "python", "-c"] if step.language == "python" else ["bash", "-c"]
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
