"""Find the layer of a compile that makes a program differ from eager; see the essay of this room.

`runtime` means that only the target differs while each of its graphs alone is right: the wrappers
around graphs, or a later call. The guilty part of Dynamo is found by the reducer
(`reduce/program/dynamo_culprit.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import get_args

from ctk.repro_templates.program.program_play import CHANGES
from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import LATER_CALL, EndToEnd
from ctk.toolkit.end_to_end.question import Compared, ProgramPlays, ProgramQuestion
from ctk.toolkit.targets import target_of

LADDER: tuple[tuple[str, FailureOrigin, str], ...] = (
    ("eager", "dynamo", "Dynamo alone"),
    ("aot_eager", "dispatch", "Dynamo and AOT dispatch"),
    ("aot_eager_decomp_partition", "dispatch", "Dynamo, AOT dispatch and decompositions"),
)
"""Backends of torch, from the least of a compiler to the most, with layer and description."""

EXPORTED: tuple[tuple[str, FailureOrigin, str], ...] = (("export", "export", "torch.export alone"),)
"""The same for a target of exported programs."""


Play = Callable[[str, Mapping[str, object]], Compared]
"""Plays a program with a target and its options, and compares it with eager."""


def ask(question: ProgramQuestion) -> EndToEnd:
    """Compare a program's compiled calls with its eager calls; say which layer differs.

    Raises:
        CtkError: The target or its options are wrong, or the program cannot be asked about.
    """
    return answer_by(ProgramPlays(question).compare, question)


def answer_by(play: Play, question: ProgramQuestion) -> EndToEnd:
    """Return the answer of the plays of a program: with its target, and down the ladder."""
    found = play(question.target, question.config)
    judgement = found.judgement
    if judgement.verdict is Verdict.PASSES and found.raised:
        detail = f"eager raises {found.raised}: no result is compared"
        judgement = Judgement(Verdict.INVALID, detail=detail)
    whole = EndToEnd(
        judgement,
        found.call,
        program=question.program.name,
        target=question.target,
        more=found.more,
    )
    if not found.judgement.fails:
        return whole
    return _find_layer(whole, found, play, (question.target, question.config))


Rung = tuple[str, Mapping[str, object]]
"""A backend and its options."""


def _find_layer(whole: EndToEnd, found: Compared, play: Play, target: Rung) -> EndToEnd:
    """Return the answer for a failure of the target, with the lowest layer that shows it.

    The play that shows it and the one below it are repeated: a layer is named only if both give the
    same answer again.
    """
    evidence: list[str] = []
    below: Rung | None = None  # eager itself, which is compared with itself
    shown, seen, lowest = target, found, ""
    layer, cause = _raising_stage(found) or ("runtime", _cause_of(found, "runtime"))
    for backend, its_layer, what in EXPORTED if target_of(whole.target).exports else LADDER:
        rung = target if backend == whole.target else (backend, {})
        played = found if rung is target else play(*rung)
        evidence.append(f"{what} (backend={backend!r}): {_describe(played.judgement)}")
        if are_alike(found.judgement, played.judgement):
            shown, seen, lowest = rung, played, backend
            layer, cause = its_layer, _cause_of(played, its_layer)
            break
        below = rung
    else:
        evidence.append(f"{whole.target}: {_describe(found.judgement)}")
    if seen.more:
        evidence.append(f"call {seen.call} has {CHANGES[seen.more]}")
    answer = replace(whole, evidence=tuple(evidence), call=seen.call, more=seen.more)
    doubt = _repeat(found.judgement, play, shown, below)
    if doubt is None:
        return replace(answer, layer=layer, cause=cause, backend=lowest)
    answer = replace(answer, evidence=(*evidence, doubt.detail))
    return replace(answer, judgement=doubt) if doubt.verdict is Verdict.FLAKY else answer


def _repeat(found: Judgement, play: Play, shown: Rung, below: Rung | None) -> Judgement | None:
    """Repeat the two plays that decide a layer; None if both answer as before.

    Returns:
        FLAKY if no play of the failure fails again; else the failure, with the other answer.
    """
    again = play(*shown).judgement
    if not are_alike(found, again):
        detail = f"played again, backend={shown[0]!r}: {_describe(again)}"
        return replace(found, verdict=Verdict.FLAKY, detail=detail)
    under = play(*below).judgement if below is not None else None
    if below is not None and under is not None and are_alike(found, under):
        detail = f"played again, backend={below[0]!r}: {_describe(under)}; it fails at random"
        return replace(found, detail=detail)
    return None


RAISES = ("runtime-error", "compile-error", "other-error")
"""Kinds of a compiled side that raises."""


def are_alike(one: Judgement, other: Judgement) -> bool:
    """Return whether two plays fail in the same way, with more and with less of the compiler.

    Exceptions are compared by call, not by type: a wrapper around a graph may hide the type
    (TorchScript names none), and a call that raises with less of the compiler gets no further with
    more of it.
    """
    if not one.fails or not other.fails or one.signature is None or other.signature is None:
        return False
    mine, its = one.signature, other.signature
    if mine.kind in RAISES:
        return its.kind in RAISES and mine.output == its.output
    if mine.exception:
        return (mine.kind, mine.exception) == (its.kind, its.exception)
    return mine.kind == its.kind or (mine.is_numeric and its.is_numeric)


def _raising_stage(found: Compared) -> tuple[FailureOrigin, str] | None:
    """Return the stage and the pass or kernel in which the target raised; None if unknown."""
    signature = found.judgement.signature
    if signature is None or signature.kind != "compile-error":
        return None
    stage, _, part = (signature.where or "").partition("/")
    layer = next((origin for origin in get_args(FailureOrigin) if origin == stage), None)
    return None if layer is None else (layer, part)


def _describe(judgement: Judgement) -> str:
    """Describe the result of a play, for a line of evidence."""
    if judgement.verdict is Verdict.PASSES:
        return "as eager"
    return str(judgement.signature) if judgement.fails else judgement.verdict.value


def _cause_of(found: Compared, layer: FailureOrigin) -> str:
    """Return the part at fault, estimated from the kind of difference and the call."""
    signature = found.judgement.signature
    name = (signature.output or "") if signature is not None else ""
    is_kept = ".held." in name or ".state." in name or (signature and signature.kind == "state")
    if found.call > 1 and found.has_compiled:
        return "recompile"
    if found.call > 1:
        return "guards" if layer == "dynamo" else LATER_CALL
    if is_kept:
        return "side_effects"
    return "capture" if layer == "dynamo" else ""
