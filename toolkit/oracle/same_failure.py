"""The oracle of a reduction: does a candidate still fail as the case did, and for that reason?

Every reduction of a compile asks through here, so that `minify` and `diagnose` ask the same.
"""

from collections.abc import Callable
from dataclasses import replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.judgement import Judgement, Verdict


def same_failure(
    case: Case, executor: Executor, *, cause: Veto | None = None
) -> Callable[[Case], Judgement]:
    """Return the oracle that says whether a candidate shows the failure of `case`.

    1. A candidate must show the signature of `case`. An exception is the same only when it comes
       from the same pass, which takes an observed compile to know.
    2. With a `cause`, the candidate must also pass once that is left out: a reduction may otherwise
       slip from the failure that was proved to another one with the same signature.

    Args:
        case: Has the signature to look for.
        executor: Who compiles and runs.
        cause: What must be to blame.
    """
    expected = case.signature
    watched = Veto() if expected is not None and expected.exception is not None else None

    def oracle(candidate: Case) -> Judgement:
        judgement = executor.ask(candidate, expected, watched, is_candidate=True)
        if cause is None or judgement.verdict is not Verdict.REPRODUCES:
            return judgement
        if executor.ask(candidate, expected, cause).verdict is Verdict.PASSES:
            return judgement
        return replace(judgement, verdict=Verdict.DIFFERENT)

    return oracle
