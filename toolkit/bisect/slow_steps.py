"""Find the pass or kernel that makes a compile slow: without it, the compile is fast.

The suspect is the step whose time grows most (oracle/questions/compile_time.py), then the
longest steps. A phase between the passes, such as the simplification of symbolic sizes, cannot be
left out. It is named from samples of the stack, and is not confirmed.
"""

from typing import cast, get_args

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.bisect.questions import ObservedCompile, Questions, list_exclusions
from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.oracle.questions.compile_time import step_seconds

SUSPECTS = 3
"""Most steps that are left out, each alone."""

LEAST_SHARE = 0.1
"""Least share of the time of all steps that makes one a suspect."""


def find_slow_step(ask: Questions, seen: ObservedCompile) -> Search:
    """Leave the slow steps out, each alone, until the case passes without one."""
    signature = seen.judgement.signature
    assert signature is not None
    suspects = list_suspects(seen.log, signature.where)
    for suspect in suspects:
        if ask.passes(suspect.veto, f"without {suspect.where}"):
            return Search(
                seen.judgement,
                suspect,
                confirmed=True,
                found_by="elimination",
                compiles=ask.compiles,
                excluded=list_exclusions(ask, seen, (suspect,)),
            )
    named = next((each for each in suspects if each.where == signature.where), None)
    if named is not None:
        reason = f"without {named.where} the compile is slow as well"
    elif signature.where:
        reason = f"{signature.where} cannot be left out: samples of the stack name it"
    else:
        reason = "no step of the compile has the time"
    return Search(
        seen.judgement,
        named,
        found_by="elimination" if named is not None else None,
        compiles=ask.compiles,
        reason=reason,
        excluded=list_exclusions(ask, seen),
    )


def list_suspects(log: CompileLog, first: str | None) -> list[Culprit]:
    """Return the steps that take long: `first`, then the longest."""
    seconds = step_seconds(log)
    least = LEAST_SHARE * sum(seconds.values())
    names = sorted(seconds, key=lambda name: (name != first, -seconds[name]))
    long = [name for name in names if name == first or seconds[name] >= least]
    return [_culprit(log, name, seconds[name]) for name in long[:SUSPECTS]]


def _culprit(log: CompileLog, name: str, seconds: float) -> Culprit:
    stage, _, short = name.partition("/")
    assert stage in get_args(FailureOrigin)
    runs = [str(p.id) for p in log.passes() if f"{p.id.stage}/{p.id.name}" == name]
    veto = Veto(passes=frozenset(runs)) if runs else Veto(kernels=frozenset({name}))
    evidence = f"{seconds:.2f} s of the compile"
    return Culprit(cast("FailureOrigin", stage), short, veto, evidence=evidence)
