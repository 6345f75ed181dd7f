"""The warm process that plays programs: `python -m ctk.toolkit.execution.programs.program_worker`.

It imports torch once and runs no op, so that it stays safe to fork; each question has a child, and
each side of the program a child of that, which starts in milliseconds. A crash or a hang of a
program ends its children only.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.process.settings import settings_put_on
from ctk.compiler.usercode.python_files import load_file
from ctk.repro_templates.graph.loading import CannotTell
from ctk.repro_templates.program.program_compare import Difference
from ctk.repro_templates.program.program_play import (
    Compile,
    How,
    compile_keywords,
    play,
    playable_of,
    seeded,
    settings_of,
)
from ctk.repro_templates.program.program_sides import Died, Values, compare_sides, in_own_process
from ctk.repro_templates.program.program_values import packed
from ctk.toolkit.case.failure import FailureKind
from ctk.toolkit.case.formats.schema import decode, encode
from ctk.toolkit.execution.programs.program_protocol import READY, Plan, Played, PlayQuestion, Seen
from ctk.toolkit.processes.groups import adopt_orphans, end_group, lead_group, reap_orphans
from ctk.toolkit.processes.memory import held_nbytes
from ctk.toolkit.processes.tree import descendants
from ctk.toolkit.targets import capturing_for, traits_of


def main() -> None:
    """Answer questions from stdin on stdout until stdin is closed."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    answers.write(READY)
    answers.flush()
    while line := questions.readline():
        question = decode(PlayQuestion, line, where="question")
        traits_of(question.plan.target).preload()
        answers.write(_answered_in_child(question) + b"\n")
        answers.flush()


def _answered_in_child(question: PlayQuestion) -> bytes:
    """Answer in a child that leads a process group, and end all that it has started."""
    reading, writing = os.pipe()
    warm = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            lead_group(warm)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_answer(question) + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.readline()  # its end may never come: what a program leaves holds it open
    end_group(pid)
    reap_orphans()
    ended = Played(unanswered="the process that compared both sides was ended")
    return answer.strip() or _encoded(ended)


def _answer(question: PlayQuestion) -> bytes:
    try:
        return _encoded(played(question))
    except Exception as error:  # the sides run in children: what is raised here is a fault of ours
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        what = f"{type(error).__name__}: {first_line(error)}"
        return _encoded(Played(unanswered=f"an error of ctk while it compared, {what} ({where})"))


def _encoded(answer: Played) -> bytes:
    return json.dumps(encode(answer)).encode()


def played(question: PlayQuestion) -> Played:
    """Play both sides of a program and compare them."""
    plan, breaks = question.plan, list[str]()

    def holds_too_much(pid: int) -> bool:
        limit = question.memory_nbytes
        return limit is not None and held_nbytes([pid, *descendants(pid)]) > limit

    def side(is_compiled: bool, how: How) -> Values:
        work = partial(_one_side, Path(question.path), plan, is_compiled, how)
        values = dict(in_own_process(work, question.timeout_seconds, holds_too_much))
        breaks.extend(values.pop("breaks", ()))
        return values

    how = How(plan.calls, plan.backward, more=plan.more, fresh=plan.fresh)
    try:
        found = compare_sides(side, how, strides=plan.strides)
    except Died as end:
        return Played(unanswered=f"eager itself ends: {first_line(end)}")
    except CannotTell as reason:
        return Played(unanswered=first_line(reason))
    if found.answer == "flaky":
        return Played(unanswered=found.detail, is_flaky=True)
    seen = tuple(_seen(each) for each in found.differences)
    return Played(seen, breaks=tuple(dict.fromkeys(breaks)))


def _seen(found: Difference) -> Seen:
    kind: FailureKind = found.kind  # type: ignore[assignment]  # the template's words are these
    return Seen(kind, found.name, " ".join(found.detail.split())[:400], found.exception)


def _one_side(path: Path, plan: Plan, is_compiled: bool, how: How) -> Values:
    sys.path.append(str(path.parent))
    with seeded():
        names = vars(load_file(path, fresh=True))
        program = playable_of(names)
        with settings_put_on(settings_of(names)):
            if not is_compiled:
                with eager_stance():
                    return {"calls": packed(play(program, how))}
            torch.compiler.reset()
            with capturing_for(plan.target, plan.config):
                calls = packed(play(program, how, _compile_with(plan, path.parent, names)))
            return {"calls": calls, "breaks": list(dynamo.graph_breaks())}


def _compile_with(plan: Plan, folder: Path, names: Mapping[str, Any]) -> Compile:
    traits = traits_of(plan.target)
    backend: Any = traits.repro_backend(plan.target, folder)
    options: Any = {**traits.defaults, **plan.config} or None

    def compiled(model: Any) -> Any:
        wanted = {"dynamic": plan.dynamic} if plan.dynamic is not None else {}
        keywords: dict[str, Any] = {**compile_keywords(names), **wanted}
        return torch.compile(model, backend=backend, options=options, **keywords)

    return compiled


if __name__ == "__main__":
    main()
