"""The question about a whole program: does its compiled call give what its eager call gives?

    play in eager, play with the target, compare          (two plays; one compile)
    they differ: play with less and less of the compiler   (layers.py)

What it does not do: look at graphs; name passes. Those are asked about the program's cases.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from ctk.compiler.errors import PrecisionRefused
from ctk.compiler.observe import first_line
from ctk.compiler.references import searched_last
from ctk.repro_templates.float64 import InFloat64
from ctk.repro_templates.random_draws import Tape, recording, replaying
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.end_to_end.build import Builds
from ctk.toolkit.end_to_end.compare import EagerPlays, compare_plays
from ctk.toolkit.end_to_end.play import How, Played, default_modes, play
from ctk.toolkit.importers.base import CALLS
from ctk.toolkit.targets import capturing_for, resolve_target
from ctk.toolkit.usercode.program import Program


@dataclass(frozen=True, slots=True)
class ProgramQuestion:
    """What is asked about a program.

    Attributes:
        program: The user's; only read.
        target: Spec of the target under test.
        config: Options of the target, those of the program included.
        backward: Whether the backward pass of the results is run too.
        dynamic: Whether sizes are symbolic wherever Dynamo can.
        calls: How many calls are made at least.
        strides: Whether strides of results count.
    """

    program: Program = field(repr=False)
    target: str = "ctk"
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    backward: bool = False
    dynamic: bool = False
    calls: int = CALLS
    strides: bool = True


@dataclass(frozen=True, slots=True)
class Compared:
    """What one backend shows.

    Attributes:
        judgement: Of the first call that differs; PASSES when none does.
        call: Its number from 1; 0 when none does.
        has_compiled: Whether a graph was compiled in that call.
    """

    judgement: Judgement
    call: int
    has_compiled: bool


class Asking:
    """Plays one program, in eager only once, with whatever backend is asked about.

    Args:
        question: What is asked.
    """

    def __init__(self, question: ProgramQuestion) -> None:
        self.question = question
        self._builds = Builds(question.program)
        modes = default_modes(question.program, backward=question.backward)
        self._how = How(modes, question.calls, is_dynamic=question.dynamic)
        with self._at_home():
            self.eager = EagerPlays(self._first(), self._eager, self._upcast, self._nudged)

    def compared(self, backend: Callable[..., Any]) -> Compared:
        """Play the program with a Dynamo backend, and compare with eager."""
        with self._at_home():
            compiled = self._played(dataclasses.replace(self._how, backend=backend))
            found, call = compare_plays(self.eager, compiled, strides=self.question.strides)
        return Compared(found, call, bool(call) and compiled[call - 1].compiles > 0)

    def compared_target(self) -> Compared:
        """Play the program with the target that the question is about, and compare with eager."""
        target, config = self.question.target, self.question.config
        with capturing_for(target, config):
            return self.compared(target_backend(target, config))

    def _at_home(self) -> AbstractContextManager[None]:
        return searched_last(self.question.program.path.parent)

    def _first(self) -> list[Played]:
        """Play eager, with one more call of other sizes if the program takes it."""
        program, how = self.question.program, self._how
        if how.calls < CALLS or program.warmups or program.between is not None:
            return self._eager()
        self._how = dataclasses.replace(how, resized=True)
        played = self._eager()
        if played[-1].error is None or len(played) == how.calls:
            return played
        self._how = how  # other sizes mean nothing to this program
        return played[: how.calls]

    def _eager(self, more_seed: int = 0) -> list[Played]:
        modes = self._how.modes
        modes = dataclasses.replace(modes, seed=modes.seed + more_seed)
        return self._played(dataclasses.replace(self._how, modes=modes))

    def _played(self, how: How, prepare: Callable[[Program], object] | None = None) -> list[Played]:
        program = self._builds.fresh()
        if prepare is not None:
            prepare(program)
        with self._builds.kept(program):
            return play(program, how)

    def _nudged(self) -> list[list[Played]]:
        """Play eager with every float moved to its neighbour, up and down."""
        towards = (math.inf, -math.inf)
        return [self._played(self._how, partial(self._builds.nudge, towards=t)) for t in towards]

    def _draws(self) -> bool:
        """Return whether a float64 play must be given random numbers; `between` may draw too."""
        calls = self.eager.first
        return self.question.program.between is not None or any(c.run.drew_random for c in calls)

    def _upcast(self) -> tuple[Sequence[Played] | None, str]:
        """Play in float64, with the random numbers that eager draws in its own dtypes."""
        tapes: list[Tape] = []

        def record() -> AbstractContextManager[object]:
            tapes.append([])
            return recording(tapes[-1])

        try:
            if self._draws():
                self._played(dataclasses.replace(self._how, around=record))
            rest = iter(tapes)
            how = dataclasses.replace(
                self._how, around=lambda: _in_float64(next(rest, None)), in_float64=True
            )
            played = self._played(how, self._builds.widen)
        except PrecisionRefused as refusal:
            return None, str(refusal)
        except Exception as error:  # the program itself runs, so only float64 can be the reason
            return None, f"float64 refused: {first_line(error)}"
        refused = next((each.error for each in played if each.error is not None), None)
        return (played, "") if refused is None else (None, f"float64 refused: {refused}")


@contextlib.contextmanager
def _in_float64(tape: Tape | None) -> Generator[None]:
    with InFloat64(), replaying(tape) if tape is not None else contextlib.nullcontext():
        yield


def target_backend(spec: str, config: Mapping[str, object]) -> Callable[..., Any]:
    """Return a target as the Dynamo backend of a program.

    Raises:
        TargetError, ConfigError: The target is unknown, or does not take the options.
    """
    target = resolve_target(spec)
    target.check_config(config)

    def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[object]) -> Any:
        return target.compile(gm, example_inputs, config=config, observer=None)

    return compile_graph
