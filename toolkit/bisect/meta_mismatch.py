"""Strategy: an operator's fake (meta) implementation tells what its kernel does not do.

The log says which nodes are not what was told (`told_values`), in one run in eager. Without the
fake implementation of a guilty operator (its real kernel answers) the case passes.

Cases:
1. The failure is one of form (strides, type, shape), or an error: every such node is a suspect.
2. Wrong numbers: strides of torch's own operators are not, which often differ and do no harm.
"""

from collections.abc import Sequence

from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.questions import Found, Questions, Seen
from ctk.toolkit.bisect.suspects import listed
from ctk.toolkit.compile_log.meta_values import WrongTold, wrong_told
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.search.blocks import likely_cause
from ctk.toolkit.search.questions import run_search

_OF_NUMBERS = ("accuracy", "nan")


def by_what_was_told(ask: Questions, seen: Seen) -> Found | None:
    """Return the operator whose fake implementation is wrong, if the case passes without it."""
    told = [each for each in wrong_told(ask.case, seen.log) if _may_matter(each, seen)]
    first = {each.where: each for each in reversed(told)}
    wheres = list(dict.fromkeys(each.where for each in told))

    def passes_without(names: Sequence[str]) -> bool:
        return ask.passes(Veto(passes=frozenset(names)), f"without {listed(names)}")

    guilty = run_search(likely_cause(wheres), passes_without)
    if guilty is None:
        return None
    nodes = tuple(dict.fromkeys(each.node for each in told if each.where == guilty))
    evidence = str(first[guilty].mismatch.detail)
    name, veto = guilty.partition("/")[2], Veto(passes=frozenset({guilty}))
    culprit = Culprit("dispatch", name, veto, nodes=nodes, evidence=evidence)
    return Found("check", (culprit,))


def _may_matter(wrong: WrongTold, seen: Seen) -> bool:
    signature = seen.judgement.signature
    if signature is None or signature.kind not in _OF_NUMBERS:
        return True
    return wrong.mismatch.kind != "stride" or not wrong.is_of_torch
