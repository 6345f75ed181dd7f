"""The question about a whole program: does its compiled call give what its eager call gives?

    play in eager, play with the target, compare           (two plays; one compile)
    they differ: play with less and less of the compiler   (layers.py)

Graphs and passes are out of scope: questions about the program's cases cover them.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from ctk.compiler.errors import ExportRefused, ProgramError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.torch_compat.dynamo.stance import eager_stance
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.process.settings import set_options
from ctk.compiler.usercode.references import search_last
from ctk.repro_templates.graph.running import STATES, under
from ctk.repro_templates.program.exported_model import export_model
from ctk.repro_templates.program.program_aliases import ALIASES
from ctk.repro_templates.program.program_compare import (
    Comparison,
    EagerPlays,
    compare_documented,
    compare_plays,
)
from ctk.repro_templates.program.program_play import CHANGES, Compile, How, Played, play
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.judgement import VERDICT_OF, Judgement, Verdict
from ctk.toolkit.case.raise_site import find_raise_site
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.end_to_end.build import Builds
from ctk.toolkit.execution.modes import current_modes, reference_state
from ctk.toolkit.options import CALLS
from ctk.toolkit.processes.link import limit_compiled
from ctk.toolkit.targets import capturing_for, resolve_target, target_of
from ctk.toolkit.targets.base import Target

UNEXPORTED = {"sizes", "overlaps", "twins", "buffers", "same", "strides"}
"""Changes of further calls that a package has no guards for; sizes unless they are dynamic."""


@dataclass(frozen=True, slots=True)
class ProgramQuestion:
    """A question about a program.

    Attributes:
        program: The user's; only read.
        config: Options of the target, those of the program included.
        backward: Also run the backward pass of the results.
        dynamic: Whether sizes are symbolic wherever Dynamo supports it.
        calls: Least number of calls.
        aliases: Whether further calls have inputs in other memory.
        strides: Whether strides of results of equal values count.
    """

    program: UserProgram = field(repr=False)
    target: str = "ctk"
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    backward: bool = False
    dynamic: bool = False
    calls: int = CALLS
    aliases: bool = False
    strides: bool = False

    @property
    def further(self) -> tuple[str, ...]:
        """The changes of further calls against the program's own."""
        plain = CHANGES.keys() - ({} if self.aliases else ALIASES).keys()
        if target_of(self.target).exports:
            plain -= UNEXPORTED - ({"sizes"} if self.dynamic else set[str]())
        return tuple(kind for kind in CHANGES if kind in plain) if self.calls >= CALLS else ()


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of one backend with eager.

    Attributes:
        judgement: Of the first call that differs; PASSES for none.
        call: The number of that call, from 1; 0 for none.
        has_compiled: Whether a graph was compiled in that call; False if unknown.
        more: The change of that call against the program's own, of `CHANGES`; empty for none.
        raised: The exception of eager if both sides raise it and give no results; else empty.
    """

    judgement: Judgement
    call: int
    has_compiled: bool
    more: str = ""
    raised: str = ""


class ProgramPlays:
    """The plays of one program: in eager once, and with any backend.

    Raises:
        ProgramError: `backward` is set, and the eager program has nothing to differentiate.
    """

    def __init__(self, question: ProgramQuestion) -> None:
        self.question = question
        self._builds = Builds(question.program)
        self._modes = dataclasses.asdict(current_modes(backward=question.backward))
        exported = target_of(question.target).exports
        how = How(question.calls, question.backward, more=question.further, exported=exported)
        with self._at_home():
            self.eager = EagerPlays(self._eager, how)
        self._check_gradients()

    def compare(self, target: str, config: Mapping[str, object]) -> Compared:
        """Play the program with a target and its options, and compare with eager."""
        calls, compiled_in, found = [0], set[int](), resolve_target(target)
        backend = exporting_backend(found) if found.exports else target_backend(target, config)

        def count_compile(gm: Any, example_inputs: Any, **how: Any) -> Any:
            compiled_in.add(calls[0])
            return backend(gm, example_inputs, **(how if found.exports else {}))

        def compile_counting(model: Any) -> Callable[..., object]:
            keywords = self._keywords()
            if found.exports:
                options = {**found.defaults, **config}
                call = export_model(model, backend=count_compile, options=options, **keywords)
            else:
                call = torch.compile(model, backend="eager", **keywords)

            def counting(*args: Any, **kwargs: Any) -> object:
                calls[0] += 1
                return call(*args, **kwargs)

            return counting

        def play_compiled(how: How) -> list[Played]:
            calls[0] = 0
            stance = torch.compiler.set_stance("default", force_backend=count_compile)
            with limit_compiled():
                return self._play(how, compile_counting, stance)

        strides = self.question.strides
        with capturing_for(target, config), self._at_home():
            try:
                played = play_compiled(self.eager.how)
            except ExportRefused as refusal:
                judgement = Judgement(Verdict.INVALID, detail=str(refusal))
                return Compared(judgement, 0, has_compiled=False)
            plays = compare_plays(self.eager, played, strides=strides)
            plays = compare_documented(self.eager, plays, play_compiled, strides=strides)
        has_compiled = plays.call in compiled_in
        judgement, raised = judge_plays(plays, played), str(plays.raised or "")
        return Compared(judgement, plays.call, has_compiled, plays.more, raised)

    def _at_home(self) -> AbstractContextManager[None]:
        return search_last(self.question.program.path.parent)

    def _keywords(self) -> dict[str, Any]:
        program = self.question.program
        asked = {k: v for k, v in program.compile.items() if k in ("dynamic", "fullgraph")}
        # None, not False: False would forbid the sizes that inputs() has marked as dynamic.
        return {"dynamic": None, **asked, **({"dynamic": True} if self.question.dynamic else {})}

    def _eager(self, how: How) -> Sequence[Played]:
        return self._play(how, None, eager_stance())

    def _play(
        self, how: How, compiled: Compile | None, stance: AbstractContextManager[object]
    ) -> list[Played]:
        program = self._builds.fresh()
        state = reference_state(self._modes) if how.in_float64 else self._modes
        torch.compiler.reset()
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._builds.keep_state(program))
            stack.enter_context(set_options(program.settings))
            stack.enter_context(under(state, STATES))
            stack.enter_context(stance)
            stack.enter_context(fake.without_log())  # an exception is a result of the program
            return play(self._builds.playable(program), how, compiled)

    def _check_gradients(self) -> None:
        returned = [call.run.layout for call in self.eager.first if call.error is None]
        given = {name for layout in returned for name in layout.differentiable}
        if self.question.backward and returned and not any(n.startswith("out") for n in given):
            raise ProgramError(
                f"--backward: no output of {self.question.program.path.name} requires grad; "
                "give it parameters or inputs with requires_grad=True, outside of torch.no_grad()"
            )


def judge_plays(found: Comparison, compiled: Sequence[Played]) -> Judgement:
    """Return the judgement for two plays.

    Args:
        compiled: The play under test, whose exception names the raising place.
    """
    verdict = VERDICT_OF[found.answer]
    if not found.differences:
        return Judgement(verdict, detail=found.detail)
    first, raised = found.differences[0], compiled[found.call - 1].exception
    is_raised = raised is not None and first.name.endswith(".error")
    kind: FailureKind = first.kind  # type: ignore[assignment]  # the template's words are these
    signature = Signature(
        kind,
        first.exception,
        find_raise_site(raised) if is_raised and raised is not None else None,
        output=first.name,
        message=first.detail,
    )
    return Judgement(verdict, signature, found.detail)


def exporting_backend(target: Target) -> Callable[..., Any]:
    """Return a target of exported programs as `export_model` takes it."""
    return cast("Callable[..., Any]", target.repro_backend(target.name, Path()))


def target_backend(spec: str, config: Mapping[str, object]) -> Callable[..., Any]:
    """Return a target as the Dynamo backend of a program.

    Raises:
        TargetError, ConfigError: The target is unknown, or does not take the options.
    """
    target = resolve_target(spec)
    target.check_config(config)

    def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[object]) -> Any:
        graph = copy_graph_module(gm)
        try:
            return target.compile(gm, example_inputs, config=config, observer=None)
        except Exception as error:
            if target.steers_dynamo(error):
                raise
            # Once more, so that the exception names its place in the compile.
            target.compile(graph, example_inputs, config=config, observer=Recorder())
            raise

    return compile_graph
