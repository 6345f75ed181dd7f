"""Runs of `ctk` that are killed at a certain question, and how many questions each of them asked.

The backend under test is wrong for graphs with both `relu` and `sigmoid`. It notes each compile in
the file `ASKED` (call nodes, and whether it is wrong), and kills its own process at number
`KILL_AT`: the question before has its answer then, this one has none.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.cli import write
from tests.helpers.warm_python import warm_python

BACKEND = """
import os
import signal

def compile(gm, example_inputs):
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    names = {getattr(node.target, "__name__", "") for node in calls}
    wrong = {"relu", "sigmoid"} <= names
    if "ASKED" in os.environ:
        with open(os.environ["ASKED"], "a") as file:
            file.write(f"{len(calls)} {wrong}\\n")
        with open(os.environ["ASKED"]) as file:
            if len(file.readlines()) == int(os.environ.get("KILL_AT", 0)):
                os.kill(os.getpid(), getattr(signal, os.environ.get("KILL_WITH", "SIGKILL")))
    return lambda *args: tuple(value + wrong for value in gm(*args))
"""

PROGRAM = """
import torch

def model():
    def tanhs(count):
        return [torch.nn.Tanh() for _ in range(count)]
    return torch.nn.Sequential(
        *tanhs(9), torch.nn.ReLU(), *tanhs(11), torch.nn.Sigmoid(), *tanhs(6)
    )

def inputs():
    return (torch.linspace(-1, 1, 8),)
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: the size of the graph, and whether it was compiled wrongly."""

    calls: int
    wrong: bool


@dataclass(frozen=True, slots=True)
class Runs:
    """The program, its backend, and the commands that are run on it."""

    folder: Path
    program: Path
    backend: Path

    @classmethod
    def new(cls, folder: Path) -> "Runs":
        return cls(
            folder,
            write(folder, "program.py", PROGRAM),
            write(folder, "backend.py", BACKEND),
        )

    def ctk(
        self, name: str, out: Path, *more: str, kill_at: int = 0, kill_with: str = "SIGKILL"
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; its questions are added to those of the runs before."""
        command = [warm_python().with_name("ctk"), name, self.program, "--out", out]
        more += ("--thorough",) * (name == "diagnose")  # else the clock decides what is asked
        counting = {
            "ASKED": str(self.folder / "asked.txt"),
            "KILL_AT": str(kill_at),
            "KILL_WITH": kill_with,
        }
        return subprocess.run(
            [*command, "--target", f"{self.backend}:compile", "--no-isolate", *more],
            capture_output=True,
            text=True,
            env=os.environ | counting,
            timeout=240,
        )

    @property
    def asked(self) -> list[Asked]:
        """The questions of all runs so far."""
        path = self.folder / "asked.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        pairs = [line.split() for line in lines]
        return [Asked(int(calls), wrong == "True") for calls, wrong in pairs]


def was_killed(run: subprocess.CompletedProcess[str]) -> bool:
    """Return whether the half of a run that works has died of SIGKILL: the other half says so."""
    return run.returncode == 125 and "killed by signal 9" in run.stdout.partition("\n")[0]
