"""The causes that a bisection has ruled out, in sentences for people.

They cost no question: the judgement, the values compared on the way to the culprit, and the
questions after which the case still failed are enough.

    values     step1 ok, step2 ok, joint/fold wrong   the 2 steps before joint/fold keep all values
    answers    without joint/cse: reproduces          it also fails without joint/cse
               with every kernel in eager: reproduces it also fails with every kernel in eager
"""

from collections.abc import Iterator, Sequence

from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.questions import NO_KERNELS, Questions
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.compile_log.recorder import Veto

SHOWN = 3
"""How many questions are listed; the rest is counted."""


def list_exclusions(
    ask: Questions, signature: Signature | None, culprits: Sequence[Culprit] = ()
) -> tuple[str, ...]:
    """Return the causes that are ruled out, each with its reason."""
    said = [*_by_eager(signature), *_by_values(ask.findings), *_by_answers(ask, culprits)]
    return tuple(said)


def _by_eager(signature: Signature | None) -> Iterator[str]:
    if signature is not None and signature.is_numeric:
        yield "eager, run twice, agrees with itself: neither a race nor random numbers"
    if signature is not None and signature.kind == "missing-error":
        yield "eager, run twice, raises the same"


def _by_values(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the steps with right values, up to the first wrong step."""
    wrong = next((i for i, each in enumerate(findings) if each.status == "wrong"), len(findings))
    fine = [each for each in findings[:wrong] if each.status == "ok" and each.compared]
    values = sum(each.compared for each in fine)
    if not fine:
        return
    steps = "step" if len(fine) == 1 else f"{len(fine)} steps"
    keep = f"keep{'s' * (len(fine) == 1)} all {values} values" if values > 1 else "keeps its value"
    if wrong < len(findings):
        yield f"the {steps} before {findings[wrong].where} {keep}"
    else:
        yield f"the {steps} that can be compared {keep}"


def _by_answers(ask: Questions, culprits: Sequence[Culprit]) -> Iterator[str]:
    failing = [
        (veto, what)
        for veto, (what, judgement) in ask.answers.items()
        if judgement.verdict is Verdict.REPRODUCES
    ]
    is_below = any(culprit.stage == "lowered" for culprit in culprits)
    if not is_below and any(veto == NO_KERNELS for veto, _ in failing):
        yield "it also fails with every kernel in eager: generated code is not to blame"
    blamed = [culprit.veto for culprit in culprits]
    alone = [what for veto, what in failing if _is_single(veto) and veto not in blamed]
    for what in alone[:SHOWN]:
        yield f"it also fails {what}"
    if len(alone) > SHOWN:
        yield f"and without {len(alone) - SHOWN} more, each alone"


def _is_single(veto: Veto) -> bool:
    if veto.fuel is not None or veto == NO_KERNELS:
        return False
    return len(veto.passes) + len(veto.rewrites) + len(veto.kernels) == 1
