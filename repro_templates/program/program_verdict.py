"""The main program of a program's repro: play it in eager and compiled, and print the verdict.

Exit code 0: no failure; 1: a failure, the expected one or another; 125: cannot tell.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.process.settings import set_options
from ctk.repro_templates.graph.exceptions import Raised, is_missing
from ctk.repro_templates.graph.excuses import Variation
from ctk.repro_templates.graph.loading import CannotTell, Excused
from ctk.repro_templates.graph.verdict import AGREES, OUTCOMES, held_nbytes, report
from ctk.repro_templates.program.program_compare import CallDifference
from ctk.repro_templates.program.program_play import Compile, How, play, playable_of, settings_of
from ctk.repro_templates.program.program_sides import (
    Died,
    Values,
    compare_sides,
    end_of,
    in_own_process,
    write_outcome,
)
from ctk.repro_templates.program.program_values import pack, read_values, write_values

SIDE = "--side"


@dataclass(frozen=True, slots=True)
class ProgramRepro:
    """The parts in which scripts differ.

    Attributes:
        program: The names of the script, those of the program among them.
        expected: The failure that the script was written for: kind, exception.
        memory_nbytes: Limit of the memory of one side; None: no limit.
    """

    program: Mapping[str, Any]
    compiled: Compile
    how: How
    expected: Mapping[str, Any]
    strides: bool = False
    timeout_seconds: float = 120.0
    memory_nbytes: int | None = None


def main_of_program(repro: ProgramRepro) -> int:
    """Print the verdict; return the exit code."""
    if sys.argv[1:2] == [SIDE]:
        asked = read_values(Path(sys.argv[2]))
        tapes = tuple(list(tape) for tape in asked["tapes"])
        plain: dict[str, Any] = json.loads(asked["how"])
        changes = Variation(**plain.pop("varied"))
        plain["settings"] = tuple(map(tuple, plain["settings"]))
        how = replace(How(**plain), more=tuple(asked["more"]), tapes=tapes, varied=changes)
        write_outcome(partial(play_side, repro, asked["compiled"], how), Path(sys.argv[3]))
        return 0
    return report(partial(difference_text, repro), AGREES)


def difference_text(repro: ProgramRepro) -> str | None:
    """Return the first difference between the sides for people; None if there is none."""
    try:
        sides = compare_sides(partial(side_of, repro), repro.how, strides=repro.strides)
    except Died as reason:
        raise CannotTell(f"eager itself ends: {reason}") from reason
    if sides.answer == "flaky":
        raise CannotTell(f"flaky: {sides.detail}")
    if sides.is_excused:
        raise Excused(f"{sides.answer}: {sides.detail}")
    if sides.answer == "passes":
        check_compared(sides.raised, repro.expected)
        return None
    wanted = [
        difference for difference in sides.differences if is_wanted(difference, repro.expected)
    ]
    first = (*wanted, *sides.differences)[0]
    if not wanted and first.exception and is_missing(Raised(first.exception, first.detail)):
        raise CannotTell(f"something is missing here: {first.exception}: {first.detail}")
    seen = f"{first.kind} at {first.name}: {' '.join(first.detail.split())}"
    return seen if wanted else f"another failure: {seen}"


def check_compared(raised: Raised | None, expected: Mapping[str, Any]) -> None:
    """Raise `CannotTell` if eager raises in every call, and did not for the author."""
    if raised is None:
        return
    if expected["kind"] not in OUTCOMES or (
        is_missing(raised) and raised.name != expected["exception"]
    ):
        raise CannotTell(f"eager raises {raised}")


def is_wanted(found: CallDifference, expected: Mapping[str, Any]) -> bool:
    """Return whether a difference is the failure that the script was written for."""
    return found.kind == expected["kind"] and found.exception == expected["exception"]


def side_of(repro: ProgramRepro, is_compiled: bool, how: How) -> Values:
    """Play one side in a process of its own; a new one if a GPU is in use, which forbids forks.

    The program's output goes to stderr.
    """
    sys.stdout.flush()
    if not torch.cuda.is_initialized():
        work = partial(play_side, repro, is_compiled, how)
        return in_own_process(work, repro.timeout_seconds, partial(holds_too_much, repro))
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question", Path(folder) / "answer"
        plain = json.dumps(asdict(replace(how, tapes=())))
        asked = {"compiled": is_compiled, "how": plain, "more": how.more, "tapes": how.tapes}
        write_values(asked, question)
        command = [sys.executable, str(repro.program["__file__"]), SIDE, question, answer]
        limit = repro.timeout_seconds
        try:
            done = subprocess.run(command, stdout=sys.stderr, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"died": f"timeout not done after {limit:g} s"}
        if answer.is_file():
            return read_values(answer)
    return {"died": end_of(done.returncode)}


def holds_too_much(repro: ProgramRepro, pid: int) -> bool:
    """Return whether the process of a side holds more memory than it may."""
    return repro.memory_nbytes is not None and held_nbytes(pid) > repro.memory_nbytes


def play_side(repro: ProgramRepro, is_compiled: bool, how: How) -> Values:
    """Play one side in this process."""
    sys.stdout = sys.stderr
    stance = contextlib.nullcontext() if is_compiled else eager_stance()
    with set_options(settings_of(repro.program)), stance:
        program = playable_of(repro.program)
        return {"calls": pack(play(program, how, repro.compiled if is_compiled else None))}
