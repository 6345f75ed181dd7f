"""One draw tried: the graph before, the real pass on a copy of it, the graph after."""

from dataclasses import dataclass

from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.same import same_graph
from ctk.compiler.observe import first_line
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.verify_rules.draws import Draw
from ctk.toolkit.verify_rules.graphs import Built, add_types, build, inputs_of
from ctk.toolkit.verify_rules.judge import Difference, difference
from ctk.toolkit.verify_rules.rounding import numbers_for
from ctk.toolkit.verify_rules.running import Play, play
from ctk.toolkit.verify_rules.subjects import Subject


@dataclass(frozen=True, slots=True)
class Trial:
    """What one draw showed.

    Attributes:
        outcome: `invalid`: the graph cannot run; `idle`: the guard refused it, or nothing matched;
            `same`: it was rewritten and nobody can tell; `differs`.
        difference: What tells the graphs apart.
        before: The graph, as the rule got it.
        after: The graph that the rule left; None where it raised, or was not asked.
        plays: The two runs.
    """

    outcome: str
    difference: Difference | None = None
    before: GraphModule | None = None
    after: GraphModule | None = None
    plays: tuple[Play, ...] = ()


INVALID, IDLE = Trial("invalid"), Trial("idle")


def attempt(subject: Subject, draw: Draw) -> Trial:
    """Try one draw."""
    try:
        built = build(draw)
        inputs = inputs_of(draw)
    except (RuntimeError, ValueError, OverflowError, TypeError, IndexError):
        return INVALID
    first = play(built.graph, inputs)
    if first.error is not None or (draw.grown and play(built.graph, built.inputs).error):
        return INVALID
    try:
        mode, fakes = add_types(built, dynamic=draw.dynamic)
    except Exception:  # an operator that has no types cannot be compiled
        return INVALID
    return _applied(subject, draw, built, first, (mode, fakes, inputs))


def _applied(
    subject: Subject, draw: Draw, built: Built, first: Play, typed: tuple[object, ...]
) -> Trial:
    after = copy_graph_module(built.graph)
    numbering = Numbering(None, Config(codegen="eager"))  # what it refuses, no other takes
    try:
        run_stage(after, subject.stage, (subject.step,), numbering)
    except Exception as error:  # whatever a rule raises is what it is refuted by
        said = f"{type(error).__name__}: {first_line(error)}"
        return Trial("differs", Difference("crash", f"the rule raises {said}"), built.graph)
    if not numbering.used and same_graph(built.graph, after):  # functions' changes go uncounted
        return IDLE
    mode, fakes, inputs = typed
    if draw.dynamic and not fake.guards_hold(mode, fakes, inputs):  # type: ignore[arg-type]  # as typed above
        return IDLE
    return _judged(subject, built.graph, after, first, inputs)  # type: ignore[arg-type]  # as typed above


def again(subject: Subject, trial: Trial, draw: Draw) -> Trial:
    """Try the graphs of a trial on the other numbers of a draw: nothing is rewritten."""
    assert trial.before is not None and trial.after is not None
    inputs = inputs_of(draw)
    first = play(trial.before, inputs)
    if first.error is not None:
        return INVALID
    return _judged(subject, trial.before, trial.after, first, inputs)


def _judged(
    subject: Subject,
    before: GraphModule,
    after: GraphModule,
    first: Play,
    inputs: tuple[Tensor, ...],
) -> Trial:
    second = play(after, inputs)
    found = difference(first, second, numbers_for(subject.numerics, before, inputs))
    return Trial("differs" if found else "same", found, before, after, (first, second))
