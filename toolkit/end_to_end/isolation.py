"""Ask about a whole program with each side in its own process, because a side may be deadly.

A compiled call that is killed, hangs or exhausts memory ends only its process; an eager call that
breaks CUDA does not affect the compiled one. The reducer's player (`execution/programs`) forks both
sides from a warm process.

    eager ends, compiled is killed by signal 11   ->  reproduces, kind `signal`, and the layer
    eager itself is killed                        ->  invalid

A callable of the library lives in the user's process only, so it is played there.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import decode_source
from pathlib import Path

from ctk.toolkit.case.usercode.program import UserProgram, entries_named
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.layers import answer_by, ask
from ctk.toolkit.end_to_end.question import Compared, ProgramQuestion
from ctk.toolkit.execution.programs.player import TIMEOUT_SECONDS, Player, judge_answer
from ctk.toolkit.execution.programs.program_protocol import Plan


def ask_in_isolation(
    question: ProgramQuestion, timeout_seconds: float | None, memory_nbytes: int | None
) -> EndToEnd:
    """Compare a program's compiled calls with its eager calls, each side in its own process.

    Args:
        question: About a program file; a callable is played in this process.
        timeout_seconds: Longest that one side may take; None: two minutes.
        memory_nbytes: Most memory of one side; None: most of the free memory.

    Raises:
        CtkError: As `ask`, or the player has ended.
    """
    program = question.program
    if not program.spec:
        return ask(question)
    text, plan = source_of(program), plan_of(question)
    with Player(program.path, timeout_seconds or TIMEOUT_SECONDS, memory_nbytes) as player:

        def play(target: str, config: Mapping[str, object]) -> Compared:
            target = with_absolute_file(target)
            seen = player.play(text, replace(plan, target=target, config=config))
            call = seen.differences[0].call if seen.differences else 0
            return Compared(
                judge_answer(seen), call, has_compiled=False, more=seen.more, raised=seen.raised
            )

        return answer_by(play, question)


def source_of(program: UserProgram) -> str:
    """Return a program's file as it is played: with `model()` and `inputs()`."""
    text = decode_source(Path(program.path).read_bytes())
    appended = entries_named(program.spec)
    return f"{text}\n\n\n{appended}" if appended else text


def plan_of(question: ProgramQuestion, call: int = 0) -> Plan:
    """Return the plan that plays a program from its file.

    Args:
        call: The failing call, which is then the last one unless the file defines
            its calls; 0: all.
    """
    program, calls = question.program, question.calls
    says_calls = bool(program.warmups) or program.between is not None
    is_known = call > 0 and not says_calls
    return Plan(
        with_absolute_file(question.target),
        question.config,
        dynamic=True if question.dynamic else None,
        calls=min(call, calls) if is_known else calls,
        more=question.further if not is_known or call > calls else (),
        backward=question.backward,
        strides=question.strides,
    )


def with_absolute_file(target: str) -> str:
    """Return a target whose file, if it is one of a file, is found from any folder."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else target
