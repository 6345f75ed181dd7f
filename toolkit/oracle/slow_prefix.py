"""Find the beginning of a graph whose compile is slow, where that of the whole does not end.

A compile that a time limit ends may hang, or may take exponentially long: the time alone does not
decide. So prefixes of the graph are compiled, by a binary search between a fast and an endless
compile:

    40 calls   more than 60 s        20 calls   more than 60 s
    10 calls   0.2 s                 15 calls   3.1 s, and its halves 0.1 s each: slow-compile

If no prefix is slow, the compile jumps from fast to endless: it hangs.
"""

from dataclasses import replace

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.oracle.questions.compile_time import part_of

SHARE = 20
"""The time limit, in those of a slow prefix: it is compiled several times within the limit."""

LEAST_SECONDS = 1.0
"""The time below which a prefix is not slow under any limit: a busy machine needs as much."""


def find_slow_prefix(
    case: Case, answer: Judgement, oracle: Oracle, limit_seconds: float | None
) -> Case | None:
    """Return a prefix of a graph with its failure `slow-compile`; None if there is none.

    Args:
        answer: That about the whole case; None is returned unless a time limit has ended it.
        oracle: Answers within the limit.
    """
    if limit_seconds is None or not answer.is_out_of_time:
        return None
    names = [node.name for node in case.graph.graph.nodes if node.op in CALLS]
    slow = Signature("slow-compile", limit=max(limit_seconds / SHARE, LEAST_SECONDS))
    fast, endless = 0, len(names)
    while endless - fast > 1:
        count = (fast + endless) // 2
        part = part_of(case, names[:count])
        if part is None:
            return None
        answer = oracle.ask(Question(part, slow, Veto()))
        if answer.verdict is Verdict.REPRODUCES and answer.signature is not None:
            found = replace(
                answer.signature, message=f"{answer.detail}; all {len(names)} do not end"
            )
            return replace(part, signature=found, name=f"{case.name}_first{count}")
        if answer.is_out_of_time:
            endless = count
        elif answer.verdict is Verdict.PASSES:
            fast = count
        else:
            return None
    return None
