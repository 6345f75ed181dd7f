"""kill -9 at random moments: nothing that was announced is lost, and nothing of ours stays behind.

One kill of two commands in the quick suite, twenty of each (a hundred) in the slow one. The delays
come from a seed that a failure prints. Every fifth killed run is resumed and comes to its end.
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.helpers.cli import BROKEN_PASS, write
from tests.helpers.kills import (
    broken_files,
    duration_of,
    kill_one,
    left_after_the_next_run,
    problems_of,
)

SEED = 20261121

PROGRAM = """
import torch

def model():
    layers = [layer for _ in range(2) for layer in (torch.nn.Linear(4, 4), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers)

def inputs():
    torch.manual_seed(0)
    return (torch.randn(2, 4),)
"""

SCRIPT = """
import torch
import ctk

def f(x):
    return torch.relu(x) + 1

with ctk.patch(on_failure="warn", custom_passes={"joint": [PASSES + ":negate_relu"]}):
    for size in range(2, 5):
        torch._dynamo.reset()
        try:
            torch.compile(f, backend="ctk")(torch.ones(size))
        except Exception as error:
            print(error)
"""

COMMANDS = {
    "run": ["run", "--out", "OUT", "SCRIPT"],
    "check": ["check", "PROGRAM"],
    "bisect-pass": ["bisect-pass", "PROGRAM", "--out", "OUT"],
    "minify": ["minify", "PROGRAM", "--out", "OUT"],
    "diagnose": ["diagnose", "PROGRAM", "--out", "OUT"],
}


class Killer:
    """Kills one command again and again."""

    def __init__(self, command: str, folder: Path) -> None:
        self._folder, self._tmp = folder, folder / "tmp"
        program = write(folder, "program.py", PROGRAM + BROKEN_PASS)
        script = write(folder, "script.py", f"PASSES = {str(program)!r}\n{SCRIPT}")
        self._places = {"PROGRAM": str(program), "SCRIPT": str(script)}
        self._command = COMMANDS[command]

    def words(self, out: Path) -> list[str]:
        places = {**self._places, "OUT": str(out)}
        return [places.get(word, word) for word in self._command]

    def kill(self, times: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        out = self._folder / "first"
        span = duration_of(self.words(out), self._folder, self._tmp)
        chance = random.Random(seed)
        for number in range(times):
            shutil.rmtree(out, ignore_errors=True)
            out = self._folder / f"out{number}"
            killed = kill_one(self.words(out), self._folder, self._tmp, chance=chance, span=span)
            assert not problems_of(killed, out), f"seed {seed}, kill {number}: {killed}"
            left = left_after_the_next_run(self._tmp, monkeypatch)
            assert not left, f"seed {seed}, kill {number}: {killed}"
            if killed.victim == "worker":  # the other half goes on, or says why not
                assert killed.exit_code in (0, 1, 125), killed
                assert killed.printed, killed
            if number % 5 == 0 and (out / "journal.jsonl").is_file():
                duration_of([*self.words(out), "--resume"], self._folder, self._tmp)
                assert not broken_files(out), f"seed {seed}, resumed after kill {number}: {killed}"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(each, marks=() if each in ("run", "bisect-pass") else pytest.mark.slow)
        for each in COMMANDS
    ],
)
def test_a_kill(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Killer(command, tmp_path).kill(1, SEED, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", COMMANDS)
def test_twenty_kills(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Killer(command, tmp_path).kill(20, SEED + 1, monkeypatch)
