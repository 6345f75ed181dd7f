"""The smallest program of a failure that no graph shows, its culprit, and its repro.

It is played with the least of a compiler that shows the failure (`EndToEnd.backend`): Dynamo with
the backend `eager`, which compiles nothing, AOT dispatch with `aot_eager`, else with the target.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctk.toolkit.case.formats.files import make_folder, write_text
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.execution.programs.player import TIMEOUT_SECONDS, Player
from ctk.toolkit.execution.programs.program_protocol import Plan
from ctk.toolkit.reduce.program.dynamo_culprit import (
    guilty_line,
    passes_outside,
    refine,
    with_line,
)
from ctk.toolkit.reduce.program.program_repro import PROGRAM, ProgramFailure, write_program_repro
from ctk.toolkit.reduce.program.statement_search import SmallProgram, reduce_program
from ctk.toolkit.reduce.progress import Budget
from ctk.toolkit.repro.run import ReproRun
from ctk.toolkit.repro.script import limits_of


@dataclass(frozen=True, slots=True)
class ProgramQuestioned:
    """A program that fails end to end.

    Attributes:
        timeout_seconds: Time limit of one side of a program.
        memory_nbytes: Memory limit of one side; None: most of the free memory.
    """

    path: Path
    text: str
    answer: EndToEnd
    plan: Plan
    budget: Budget = field(default_factory=Budget)
    timeout_seconds: float = TIMEOUT_SECONDS
    memory_nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """The result of reducing a program; no `reduction` if the failure was not seen again."""

    answer: EndToEnd
    reduction: SmallProgram | None = None
    script: Path | None = None
    run: ReproRun | None = None


def name_culprit(
    asked: ProgramQuestioned, say: Callable[[str], None] = lambda text: None
) -> EndToEnd:
    """Find the culprit in the program as it is, its guilty line included."""
    with Player(asked.path, asked.timeout_seconds, asked.memory_nbytes) as player:
        plan = plan_of_layer(asked, player)
        say("look for a change that makes the program pass")
        answer, blamed = refine(asked.answer, player, asked.text, plan)
        if not blamed.cause or answer.confirmed or not _may_have_line(answer):
            return answer
        say("look for the line")
        return _with_own_line(asked.path, answer, player, asked.text, plan)


def _may_have_line(answer: EndToEnd) -> bool:
    """Return whether a line outside of Dynamo can prove the layer of an answer."""
    return bool(answer.backend) and answer.layer in ("dynamo", "dispatch")


def explain_program(
    asked: ProgramQuestioned, folder: Path, say: Callable[[str], None] = lambda text: None
) -> Explained:
    """Find the culprit, make the program small, write it with its repro."""
    text = asked.text
    with Player(asked.path, asked.timeout_seconds, asked.memory_nbytes) as player:
        plan = plan_of_layer(asked, player)
        say("look for a change that makes the program pass")
        answer, blamed = refine(asked.answer, player, text, plan)
        seen = player.play(text, plan)
        if not seen.differences:
            return Explained(answer)
        expected = seen.differences[0].signature
        say("make the program smaller")
        make_folder(folder)
        ask = player.make_oracle(plan, expected, blamed.passing)
        small = reduce_program(
            text, ask, asked.budget, lambda smaller: write_text(folder / PROGRAM, smaller)
        )
        if _may_have_line(answer):
            say("look for the line")
            answer = _with_line(asked, answer, player, small, plan)
    place = f"{answer.where}, {answer.line}" if answer.line else answer.where
    limits = limits_of(expected, asked.timeout_seconds, asked.memory_nbytes)
    limits = replace(limits, seconds=max(limits.seconds, asked.timeout_seconds))
    failure = ProgramFailure(small.text, asked.path, plan, expected, place, limits)
    say("run the repro in a clean process")
    script, run = write_program_repro(failure, folder)
    return Explained(answer, small, script, run)


def _with_line(
    asked: ProgramQuestioned, answer: EndToEnd, player: Player, small: SmallProgram, plan: Plan
) -> EndToEnd:
    """Return the answer with the guilty line of the small program, as a line of the user's file.

    It is asked about there as well; without an answer the user's file is searched itself.
    """
    found = guilty_line(player, small.text, plan)
    if found is None:
        return answer
    line = small.lines.get((found.line, found.column))
    if line is None or not passes_outside(player, asked.text, plan, line):
        return _with_own_line(asked.path, answer, player, asked.text, plan)
    mapped = {number: at for (number, _), at in sorted(small.lines.items(), reverse=True)}
    others = {mapped[each] for each in found.others if each in mapped} - {line}
    wheres = [f"{asked.path.name}:{each}" for each in sorted(others)]
    return with_line(answer, f"{asked.path.name}:{line}", found, *wheres)


def _with_own_line(path: Path, answer: EndToEnd, player: Player, text: str, plan: Plan) -> EndToEnd:
    found = guilty_line(player, text, plan)
    if found is None:
        return answer
    others = [f"{path.name}:{each}" for each in found.others]
    return with_line(answer, f"{path.name}:{found.line}", found, *others)


def plan_of_layer(asked: ProgramQuestioned, player: Player) -> Plan:
    """Return the plan that shows a failure of the answer's layer.

    Of further calls only the failing one is made, if it fails without the others.
    """
    plan, answer = asked.plan, asked.answer
    plan = replace(plan, target=answer.backend, config={}) if answer.backend else plan
    if not answer.more:
        return plan
    short = replace(plan, more=(answer.more,))
    return short if player.play(asked.text, short).differences else plan
