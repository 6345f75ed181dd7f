"""The main program of a program's repro: play it in eager and compiled, and print the verdict.

Exit code 0: no failure; 1: a failure, the expected one or another; 125: cannot tell.
"""

import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ctk.repro_templates.program_play import How, play
from ctk.repro_templates.program_sides import (
    DEFAULTS,
    Difference,
    Unanswered,
    Values,
    find_differences,
    in_own_process,
)
from ctk.repro_templates.program_values import read_values, write_values

SIDE = "--side"


@dataclass(frozen=True, slots=True)
class ProgramRepro:
    """What differs from script to script.

    Attributes:
        program: The names of the script, those of the program among them.
        compiled: Compiles the model with the target.
        how: How the program is played.
        expected: The failure that the script was written for: kind, exception.
        timeout_seconds: Longest that one side may take.
    """

    program: Mapping[str, Any]
    compiled: Callable[[Any], Callable[..., object]]
    how: How
    expected: Mapping[str, Any]
    timeout_seconds: float = 120.0


def main_of_program(repro: ProgramRepro) -> int:
    """Print the verdict; return the exit code."""
    how = {**DEFAULTS, **repro.how}
    if sys.argv[1:2] == [SIDE]:
        asked = json.loads(sys.argv[2])
        values = played_side(repro, asked["compiled"], asked["how"])
        write_values(values, Path(asked["path"]))
        return 0
    try:
        found = find_differences(partial(side_of, repro), how)
    except Unanswered as reason:
        print(f"CANNOT TELL: {reason}")
        return 125
    except Exception as error:
        traceback.print_exc()
        print(f"CANNOT TELL: something else fails: {type(error).__name__}: {error}")
        return 125
    if not found:
        print("NO FAILURE: the compiled program agrees with eager")
        return 0
    wanted = [each for each in found if is_wanted(each, repro.expected)]
    first = (wanted or found)[0]
    seen = f"{first.kind} at {first.name}: {' '.join(first.detail.split())}"
    head = "FAILURE:" if wanted else "FAILURE: another failure:"
    print(f"{head} {seen}")
    return 1


def is_wanted(found: Difference, expected: Mapping[str, Any]) -> bool:
    """Return whether a difference is the failure that the script was written for."""
    return found.kind == expected["kind"] and found.exception == expected["exception"]


def side_of(repro: ProgramRepro, is_compiled: bool, how: How) -> Values:
    """Play one side in a process of its own; a new one where a GPU is in use, which forbids forks.

    What the program prints goes to stderr.
    """
    sys.stdout.flush()
    if not torch.cuda.is_initialized():
        work = partial(played_side, repro, is_compiled, how)
        return in_own_process(work, repro.timeout_seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values"
        asked = json.dumps({"compiled": is_compiled, "how": dict(how), "path": str(path)})
        command = [sys.executable, str(repro.program["__file__"]), SIDE, asked]
        done = subprocess.run(command, stdout=sys.stderr, check=False)
        if path.is_file():
            return read_values(path)
    code = done.returncode
    return {"died": f"signal {-code}" if code < 0 else f"exit with status {code}"}


def played_side(repro: ProgramRepro, is_compiled: bool, how: How) -> Values:
    """Play one side in this process."""
    sys.stdout = sys.stderr
    return play(repro.program, repro.compiled if is_compiled else None, how)
