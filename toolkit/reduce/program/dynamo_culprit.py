"""Name the part of Dynamo, or of the wrappers of compiled graphs, that makes a program fail.

Counterfactuals decide, each a run of the same program:

    with `dynamic=False` it passes                      -> dynamic_shapes
    compiled again before each call, it passes          -> guards: one is missing; reused code, if
                                                           the same guards are right without the
                                                           target: its code keeps an earlier call
    with one line run outside of Dynamo it passes       -> that line, and by the difference:
        Python state, an argument, an alias             -> side_effects
        an exception                                    -> exceptions
        a value, after a graph break                    -> resumption
        a value                                         -> capture

The culprit is `confirmed` only if a counterfactual passes. Graphs and passes are not searched.

Of several lines, one is preferred that makes the program pass only outside of Dynamo, and not with
a graph break around it: a break alone may hide the symptom of an earlier line. All others are its
alternatives. If only the target differs (`runtime`), a line or `dynamic=False` proves nothing,
since it changes every graph: no line is searched, and static sizes are evidence, not a proof.
"""

from dataclasses import dataclass, replace
from itertools import islice

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.execution.programs.player import Player
from ctk.toolkit.execution.programs.program_protocol import Plan, PlayAnswer
from ctk.toolkit.reduce.program.eager_lines import (
    Outside,
    outside_calls,
    outside_lines,
    with_break,
)
from ctk.toolkit.targets import target_of

MOST_LINES = 60
"""Most lines to try one by one: each is a compile."""

REUSED = "reused code"

ERRORS = ("missing-error", "other-error", "runtime-error", "compile-error")


@dataclass(frozen=True, slots=True)
class Blamed:
    """The cause of a program's failure, as its counterfactuals show it.

    Attributes:
        cause: `guards`, `capture`, `side_effects`, `resumption`, `exceptions`, `dynamic_shapes`;
            for the layer `runtime` the fault of the wrapper (`aliases`, `mutations`, `strides`,
            `requires_grad`), or `reused code`.
        passing: The counterfactual that must keep passing while the program is made smaller.
    """

    cause: str
    evidence: tuple[str, ...] = ()
    confirmed: bool = False
    passing: Plan | None = None


def cause_of(player: Player, text: str, plan: Plan, seen: PlayAnswer) -> Blamed:
    """Return the part of Dynamo that is at fault, by the counterfactual that passes."""
    first = seen.differences[0]
    return _by_plans(player, text, plan, first.call) or Blamed(
        _kind_of_cause(first.signature, seen)
    )


def _by_plans(player: Player, text: str, plan: Plan, call: int) -> Blamed | None:
    """Return the cause, if static sizes or a fresh compile before each call make it pass."""
    is_first = call == 1  # unknown (0) for a process that ended
    static = replace(plan, dynamic=False)
    fresh = replace(plan, fresh=True)
    may_be_dynamic = plan.dynamic is not False and (plan.dynamic or not is_first)
    if may_be_dynamic and _passes(player, text, static):
        return Blamed("dynamic_shapes", ("with dynamic=False it passes",), True, static)
    if not is_first and _passes(player, text, fresh):
        said = "compiled again before each call, it passes: code of an earlier call is reused"
        return Blamed("guards", (said,), True, fresh)
    return None


def _passes(player: Player, text: str, plan: Plan) -> bool:
    seen = player.play(text, plan)
    return not seen.differences and not seen.unanswered


def _kind_of_cause(signature: Signature, seen: PlayAnswer) -> str:
    short = (signature.output or "").partition(".")[2]
    if signature.kind in ERRORS:
        return "exceptions"
    if signature.kind in ("state", "alias") or short.startswith(("state.", "held.")):
        return "side_effects"
    return "resumption" if seen.breaks else "capture"


def wrapper_of(signature: Signature) -> str:
    """Return the fault of the wrapper around compiled graphs, by the difference."""
    short = (signature.output or "").partition(".")[2]
    if signature.kind in ("alias", "stride", "requires-grad"):
        return {"alias": "aliases", "stride": "strides"}.get(signature.kind, "requires_grad")
    if short.startswith(("held.", "state.")):
        return "mutations"
    return "gradients" if short.startswith("grad.") else ""


def guilty_line(player: Player, text: str, plan: Plan) -> Outside | None:
    """Return the line that makes the program pass if it runs outside of Dynamo.

    Lines that only call a function with such a line are skipped: the innermost one is named. Of a
    line with several calls the smallest sufficient part is returned.
    """
    lines = islice(outside_lines(text), MOST_LINES)
    passing = [line for line in lines if _passes(player, line.text, plan)]
    inner = [each for each in passing if not each.calls] or passing
    if len(inner) > 1:
        inner = [each for each in inner if _needs_more(player, text, plan, each.line)] or inner
    found = min(inner, key=lambda each: (len(each.source), each.line), default=None)
    if found is None:
        return None
    others = tuple(each.line for each in inner if each.line != found.line)
    for part in islice(outside_calls(text, found.line), MOST_LINES):
        if len(part.source) < len(found.source) and _passes(player, part.text, plan):
            found = part
    return replace(found, others=others)


def _needs_more(player: Player, text: str, plan: Plan, line: int) -> bool:
    """Return whether the program still fails with a graph break around a line."""
    broken = with_break(text, line)
    return broken is None or not _passes(player, broken, plan)


def passes_outside(player: Player, text: str, plan: Plan, line: int) -> bool:
    """Return whether a program passes with the statement of a line outside of Dynamo."""
    return any(
        _passes(player, each.text, plan) for each in outside_lines(text) if each.line == line
    )


def refine(answer: EndToEnd, player: Player, text: str, plan: Plan) -> tuple[EndToEnd, Blamed]:
    """Return the answer with cause, line and proof, and the cause; `text` may be made smaller."""
    seen = player.play(text, plan)
    if not seen.differences:
        why = seen.unanswered or "played again in a process of its own, it passes"
        return replace(answer, evidence=(*answer.evidence, f"not narrowed down: {why}")), Blamed("")
    if answer.layer in ("dynamo", "dispatch"):
        found = cause_of(player, text, plan, seen)
    else:
        first = seen.differences[0]
        other = Blamed(wrapper_of(first.signature) or answer.cause)
        is_guarded = not target_of(plan.target).exports
        found = (is_guarded and _by_plans(player, text, plan, first.call)) or other
        found = replace(found, confirmed=found.cause == "guards")
        found = replace(found, cause=REUSED) if found.confirmed else found
    broken = tuple(f"Dynamo broke the graph: {reason}" for reason in seen.breaks[:2])
    named = replace(
        answer,
        cause=found.cause,
        evidence=(*answer.evidence, *found.evidence, *broken),
        confirmed=found.confirmed,
    )
    return named, found


def with_line(answer: EndToEnd, line: str, found: Outside, *others: str) -> EndToEnd:
    """Return the answer with the guilty line and its alternatives; each is a `FILE:LINE`."""
    said = [f"with {line} `{found.source}` run outside of Dynamo it passes"]
    said += [f"it passes with {other} outside as well" for other in others]
    return replace(
        answer,
        line=line,
        confirmed=True,
        evidence=(*answer.evidence, *said),
        alternatives=others,
    )
