"""Name what in Dynamo, or around compiled graphs, makes a program differ from eager.

Counterfactuals decide, each a run of the same program:

    with `dynamic=False` it passes                      -> dynamic_shapes
    compiled anew before each call, it passes          -> guards: one is missing
    with one line run outside of Dynamo it passes       -> that line, and then by what differs:
        Python state, an argument, an alias             -> side_effects
        an exception                                    -> exceptions
        a value, after a graph break                    -> resumption
        a value                                         -> capture

`confirmed` is said only where a counterfactual passes. What it does not do: name graphs and passes.
"""

from dataclasses import dataclass, replace
from itertools import islice

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.execution.programs.player import Player
from ctk.toolkit.execution.programs.program_protocol import Plan, PlayAnswer
from ctk.toolkit.reduce.program.eager_lines import Outside, outside_calls, outside_lines

MOST_LINES = 60
"""So many lines are tried one by one: each is a compile."""

ERRORS = ("missing-error", "other-error", "runtime-error", "compile-error")


@dataclass(frozen=True, slots=True)
class Blamed:
    """What a failing program was played for, and what that showed.

    Attributes:
        cause: `guards`, `capture`, `side_effects`, `resumption`, `exceptions`, `dynamic_shapes`;
            for the layer `runtime` what the wrapper does wrongly (`aliases`, `mutations`,
            `strides`, `requires_grad`).
        evidence: How we know.
        confirmed: Whether a counterfactual passes.
        passing: The counterfactual that must go on passing while the program is made smaller.
    """

    cause: str
    evidence: tuple[str, ...] = ()
    confirmed: bool = False
    passing: Plan | None = None


def cause_of(player: Player, text: str, plan: Plan, seen: PlayAnswer) -> Blamed:
    """Return what in Dynamo is at fault, by what makes the program pass.

    Args:
        player: Plays the counterfactuals.
        text: The program.
        plan: With which it fails.
        seen: How it fails.
    """
    first = seen.differences[0]
    is_first = first.call == 1  # of a process that ended nobody knows in which call it was
    static = replace(plan, dynamic=False)
    fresh = replace(plan, fresh=True)
    may_be_dynamic = plan.dynamic is not False and (plan.dynamic or not is_first)
    if may_be_dynamic and _passes(player, text, static):
        return Blamed("dynamic_shapes", ("with dynamic=False it passes",), True, static)
    if not is_first and _passes(player, text, fresh):
        before = f"call {first.call}" if first.call else "each call"
        said = f"compiled anew before {before}, it passes: what was compiled before is used again"
        return Blamed("guards", (said,), True, fresh)
    return Blamed(_kind_of_cause(first.signature, seen))


def _passes(player: Player, text: str, plan: Plan) -> bool:
    seen = player.played(text, plan)
    return not seen.differences and not seen.unanswered


def _kind_of_cause(signature: Signature, seen: PlayAnswer) -> str:
    short = (signature.output or "").partition(".")[2]
    if signature.kind in ERRORS:
        return "exceptions"
    if signature.kind in ("state", "alias") or short.startswith(("state.", "held.")):
        return "side_effects"
    return "resumption" if seen.breaks else "capture"


def wrapper_of(signature: Signature) -> str:
    """Return what a wrapper around compiled graphs does wrongly, by what differs."""
    short = (signature.output or "").partition(".")[2]
    if signature.kind in ("alias", "stride", "requires-grad"):
        return {"alias": "aliases", "stride": "strides"}.get(signature.kind, "requires_grad")
    if short.startswith(("held.", "state.")):
        return "mutations"
    return "gradients" if short.startswith("grad.") else ""


def guilty_line(player: Player, text: str, plan: Plan) -> Outside | None:
    """Return the line with which run outside of Dynamo the program passes.

    Lines that only call a function in which such a line stands are passed over: the innermost one
    is named. Of a line with several calls it is the smallest part that must run outside.
    """
    lines = islice(outside_lines(text), MOST_LINES)
    passing = [each for each in lines if _passes(player, each.text, plan)]
    inner = [each for each in passing if not each.calls]
    found = min(inner or passing, key=lambda each: (len(each.source), each.line), default=None)
    if found is None:
        return None
    for part in islice(outside_calls(text, found.line), MOST_LINES):
        if len(part.source) < len(found.source) and _passes(player, part.text, plan):
            found = part
    return found


def refine(answer: EndToEnd, player: Player, text: str, plan: Plan) -> tuple[EndToEnd, Blamed]:
    """Return the answer with cause, line and proof, and what is known of the cause.

    Args:
        answer: Says that the program fails, and in which layer.
        player: Plays the program's file.
        text: The program, whole or made smaller.
        plan: With which it is played: the backend of the layer.
    """
    seen = player.played(text, plan)
    if not seen.differences:
        why = seen.unanswered or "played again in a process of its own, it passes"
        return replace(answer, evidence=(*answer.evidence, f"not narrowed down: {why}")), Blamed("")
    if answer.layer == "runtime":
        found = Blamed(wrapper_of(seen.differences[0].signature) or answer.cause)
    else:
        found = cause_of(player, text, plan, seen)
    broken = tuple(f"Dynamo broke the graph: {reason}" for reason in seen.breaks[:2])
    named = replace(
        answer,
        cause=found.cause,
        evidence=(*answer.evidence, *found.evidence, *broken),
        confirmed=found.confirmed,
    )
    return named, found


def with_line(answer: EndToEnd, line: str, found: Outside) -> EndToEnd:
    """Return the answer with the line that is at fault; `line` is `FILE:LINE`."""
    said = f"with {line} `{found.source}` run outside of Dynamo it passes"
    return replace(answer, line=line, confirmed=True, evidence=(*answer.evidence, said))
