"""Steps that change values although the results agree: a later layer hides the error.

Each is proved by a compile without it: then that step does nothing, and no other is wrong instead.
The case passes either way, so this is no failure.
"""

from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.provenance import traced
from ctk.toolkit.bisect.questions import Questions, Seen
from ctk.toolkit.bisect.suspects import from_check
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.compile_log.recorder import Veto

MAX_HIDDEN = 4


def hidden_steps(ask: Questions, seen: Seen) -> tuple[Culprit, ...]:
    """Return the steps that change values, each confirmed by the values of a compile without it."""
    suspects = [s for s in from_check(ask.case, seen.log) if s.veto != Veto()][:MAX_HIDDEN]
    others = {suspect.where for suspect in suspects}
    found: list[Culprit] = []
    for suspect in suspects:
        without = ask.observe(suspect.veto, f"the results agree; without {suspect}")
        if without.judgement.verdict is not Verdict.PASSES:
            continue
        wrong = {step.where for step in from_check(ask.case, without.log)}
        if suspect.where not in wrong and wrong <= others:
            found.append(traced(suspect, seen.log, ask.case.graph))
    return tuple(found)
