"""The warm process that plays programs: `python -m ctk.toolkit.execution.programs.program_worker`.

Each question is answered by a fork of it, and each side of the program runs in a fork of that, so
that a crash or a hang ends only these.
"""

import sys
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.process.settings import set_options
from ctk.compiler.usercode.python_files import load_file
from ctk.repro_templates.graph.loading import CannotTell
from ctk.repro_templates.program.exported_model import export_model
from ctk.repro_templates.program.program_compare import CallDifference
from ctk.repro_templates.program.program_play import (
    Compile,
    How,
    compile_keywords,
    play,
    playable_of,
    seed_all,
    settings_of,
)
from ctk.repro_templates.program.program_sides import Died, Values, compare_sides, in_own_process
from ctk.repro_templates.program.program_values import pack
from ctk.toolkit.case.failure import FailureKind
from ctk.toolkit.case.formats.schema import decode, encode
from ctk.toolkit.case.judgement import VERDICT_OF
from ctk.toolkit.execution.programs.program_protocol import (
    Plan,
    PlayAnswer,
    PlayedDifference,
    PlayQuestion,
)
from ctk.toolkit.processes.forks import ForkedChild
from ctk.toolkit.processes.groups import reap_orphans
from ctk.toolkit.processes.memory import held_nbytes
from ctk.toolkit.processes.tree import find_descendants
from ctk.toolkit.processes.warm import become_server, write_json
from ctk.toolkit.targets import capturing_for, target_of


def main() -> None:
    """Answer questions from stdin on stdout until stdin is closed."""
    pipes = become_server()
    while line := pipes.requests.readline():
        question = decode(PlayQuestion, line, where="question")
        target_of(question.plan.target).preload()
        write_json(pipes.answers, encode(_answer_in_child(question)))


def _answer_in_child(question: PlayQuestion) -> PlayAnswer:
    """Answer in a child that leads a process group, and end all processes that it has started."""

    def serve(requests: BinaryIO, answers: BinaryIO) -> int:
        write_json(answers, encode(_answer(question)))
        return 0

    child = ForkedChild.start(serve)
    line = child.answers.readline()  # a process that the program leaves keeps the pipe open
    child.end()
    reap_orphans()
    if not line:
        return PlayAnswer(unanswered="the process that compared both sides was ended")
    return decode(PlayAnswer, line, where="answer")


def _answer(question: PlayQuestion) -> PlayAnswer:
    try:
        return play_both_sides(question)
    except Exception as error:  # the sides run in children: this is a fault of ctk
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        raised = f"{type(error).__name__}: {first_line(error)}"
        return PlayAnswer(unanswered=f"an error of ctk while it compared, {raised} ({where})")


def play_both_sides(question: PlayQuestion) -> PlayAnswer:
    """Play both sides of a program and compare them."""
    plan, breaks = question.plan, list[str]()

    def holds_too_much(pid: int) -> bool:
        limit = question.memory_nbytes
        return limit is not None and held_nbytes([pid, *find_descendants(pid)]) > limit

    def side(is_compiled: bool, how: How) -> Values:
        work = partial(_play_one_side, Path(question.path), plan, is_compiled, how)
        values = dict(in_own_process(work, question.timeout_seconds, holds_too_much))
        breaks.extend(values.pop("breaks", ()))
        return values

    exported = target_of(plan.target).exports
    how = How(plan.calls, plan.backward, more=plan.more, fresh=plan.fresh, exported=exported)
    try:
        sides = compare_sides(side, how, strides=plan.strides)
    except Died as end:
        return PlayAnswer(unanswered=f"eager itself ends: {first_line(end)}")
    except CannotTell as reason:
        return PlayAnswer(unanswered=first_line(reason))
    if sides.answer == "flaky":
        return PlayAnswer(unanswered=sides.detail, is_flaky=True)
    if sides.is_excused:
        return PlayAnswer(excuse=VERDICT_OF[sides.answer], detail=sides.detail)
    seen = tuple(_convert_difference(difference) for difference in sides.differences)
    raised, breaks = str(sides.raised or ""), list(dict.fromkeys(breaks))
    return PlayAnswer(seen, breaks=tuple(breaks), more=sides.more, raised=raised)


def _convert_difference(found: CallDifference) -> PlayedDifference:
    kind: FailureKind = found.kind  # type: ignore[assignment]  # the template's words are these
    return PlayedDifference(kind, found.name, " ".join(found.detail.split())[:400], found.exception)


def _play_one_side(path: Path, plan: Plan, is_compiled: bool, how: How) -> Values:
    sys.path.append(str(path.parent))
    with seed_all():
        names = vars(load_file(path, fresh=True))
        program = playable_of(names)
        with set_options(settings_of(names)):
            if not is_compiled:
                with eager_stance():
                    return {"calls": pack(play(program, how))}
            torch.compiler.reset()
            with capturing_for(plan.target, plan.config):
                calls = pack(play(program, how, _compile_with(plan, path.parent, names)))
            return {"calls": calls, "breaks": list(dynamo.graph_breaks())}


def _compile_with(plan: Plan, folder: Path, names: Mapping[str, Any]) -> Compile:
    target = target_of(plan.target)
    backend: Any = target.repro_backend(plan.target, folder)
    options: Any = {**target.defaults, **plan.config} or None

    def compiled(model: Any) -> Any:
        wanted = {"dynamic": plan.dynamic} if plan.dynamic is not None else {}
        keywords: dict[str, Any] = {**compile_keywords(names), **wanted}
        compile_model: Any = export_model if target.exports else torch.compile
        return compile_model(model, backend=backend, options=options, **keywords)

    return compiled


if __name__ == "__main__":
    main()
