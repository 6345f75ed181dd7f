"""One draw tried: the graph before, the real pass on a copy of it, the graph after."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.same import same_graph
from ctk.compiler.observe import first_line
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.execution.execute import Outcome
from ctk.toolkit.verify_rules.draws import Draw
from ctk.toolkit.verify_rules.graphs import add_types, build_graph, run_inputs
from ctk.toolkit.verify_rules.judge import RuleDifference, find_difference, run_drawn
from ctk.toolkit.verify_rules.rounding import numbers_judge
from ctk.toolkit.verify_rules.subjects import RuleSubject


@dataclass(frozen=True, slots=True)
class RuleTrial:
    """The result of one draw.

    Attributes:
        outcome: `invalid`: the graph cannot run; `idle`: the guard refused it, or nothing matched;
            `same`: it was rewritten without an observable difference; `differs`.
        after: The graph that the rule left; None if the rule raised or did not run.
    """

    outcome: Literal["invalid", "idle", "same", "differs"]
    difference: RuleDifference | None = None
    before: GraphModule | None = None
    after: GraphModule | None = None
    runs: tuple[Outcome, ...] = ()


INVALID, IDLE = RuleTrial("invalid"), RuleTrial("idle")


def try_draw(subject: RuleSubject, draw: Draw) -> RuleTrial:
    """Build the graph of a draw, apply the rule to a copy, and compare the two."""
    try:
        drawn = build_graph(draw)
        inputs = run_inputs(draw)
    except (RuntimeError, ValueError, OverflowError, TypeError, IndexError):
        return INVALID
    before = run_drawn(drawn.graph, inputs)
    if before.error is not None or (draw.grown and run_drawn(drawn.graph, drawn.inputs).error):
        return INVALID
    try:
        mode, fakes = add_types(drawn, dynamic=draw.dynamic)
    except Exception:  # an operator that has no types cannot be compiled
        return INVALID
    after = copy_graph_module(drawn.graph)
    numbering = Numbering(None, Config(codegen="eager"))  # as strict as all code generators
    try:
        run_stage(after, subject.stage, (subject.step,), numbering)
    except Exception as error:  # any exception refutes the rule
        raised = f"the rule raises {type(error).__name__}: {first_line(error)}"
        return RuleTrial("differs", RuleDifference("crash", raised), drawn.graph)
    if not numbering.used and same_graph(drawn.graph, after):  # functions' changes go uncounted
        return IDLE
    if draw.dynamic and not fake.guards_hold(mode, fakes, inputs):
        return IDLE
    return _compare(subject, drawn.graph, after, before, inputs)


def try_other_values(subject: RuleSubject, trial: RuleTrial, draw: Draw) -> RuleTrial:
    """Compare the two graphs of a trial on the numbers of another draw of the same graph."""
    assert trial.before is not None and trial.after is not None
    inputs = run_inputs(draw)
    before = run_drawn(trial.before, inputs)
    if before.error is not None:
        return INVALID
    return _compare(subject, trial.before, trial.after, before, inputs)


def _compare(
    subject: RuleSubject,
    before: GraphModule,
    after: GraphModule,
    run_before: Outcome,
    inputs: tuple[Tensor, ...],
) -> RuleTrial:
    run_after = run_drawn(after, inputs)
    judge_numbers = numbers_judge(subject.numerics, before, inputs)
    difference = find_difference(run_before, run_after, judge_numbers)
    outcome = "differs" if difference else "same"
    return RuleTrial(outcome, difference, before, after, (run_before, run_after))
