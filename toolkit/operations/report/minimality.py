"""Why a minimal case is not smaller, for people: node by node, with the outcome of each edit.

    mul: float32[8] = aten.mul.Tensor(x, 2)
      without mul                passes          remove
      x in place of mul          not asked       remove    leaves no program that makes sense

`certificate.py` reads and writes the certificate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.operations.report.certificate_file import CertificateRecord
from ctk.toolkit.operations.report.phrases import ending
from ctk.toolkit.reduce.certificate import Refusal

THE_REST = "the case as a whole: results, sizes, options, passes, modes"
NOT_ASKED = "not asked"


@document
@dataclass(frozen=True, slots=True)
class Part:
    """A part of the minimal case, and the outcome of each edit that would change it.

    Attributes:
        name: Name of the node; empty for other parts.
        line: Its line.
        refusals: In the order in which they were tried.
    """

    name: Line
    line: Line
    refusals: tuple[Refusal, ...]


def parts_of(record: CertificateRecord) -> tuple[Part, ...]:
    """Return the parts with their refused edits, in order; the part without a node comes last."""
    names = {node.name for node in record.nodes}
    by_name: dict[str, list[Refusal]] = {name: [] for name in names}
    rest: list[Refusal] = []
    for refusal in record.refusals:
        about = [name for name in dict.fromkeys(refusal.about) if name in names]
        for name in about:
            by_name[name].append(refusal)
        if not about:
            rest.append(refusal)
    parts = [Part(node.name, node.line, tuple(by_name[node.name])) for node in record.nodes]
    return (*parts, *([Part("", THE_REST, tuple(rest))] if rest else []))


def answer_of(record: CertificateRecord) -> str:
    """Return in one line whether the case is minimal, and how much was tried."""
    asked = sum(refusal.verdict is not None for refusal in record.refusals)
    tried = len(record.refusals) + record.left_out
    how = ending(record.stopped_by, record.unfinished)
    state = how if record.is_minimal else f"not minimal ({how})"
    return f"{state}: {tried} edits tried, {asked} of them asked about, none reproduces"


def verdict_of(refusal: Refusal) -> str:
    """Return the outcome of an edit, in a word or two."""
    return NOT_ASKED if refusal.verdict is None else refusal.verdict.value


def reason_of(refusal: Refusal) -> str:
    """Return the reason, where it adds to the verdict: equal results do not."""
    return "" if refusal.verdict is Verdict.PASSES else refusal.why


def sum_up_refusals(refusals: Iterable[Refusal]) -> str:
    """Return how often each thing came of some edits: `12 passes, 3 not asked`."""
    words = [verdict_of(refusal) for refusal in refusals]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def choose_shown(
    refusals: Sequence[Refusal], most: int
) -> tuple[Sequence[Refusal], Sequence[Refusal]]:
    """Return which refusals are shown, those with an answer first, and which are summed up."""
    asked = [refusal for refusal in refusals if refusal.verdict is not None]
    others = [refusal for refusal in refusals if refusal.verdict is None]
    every = [*asked, *others]
    keep = most if len(every) > most + 1 else len(every)
    return every[:keep], every[keep:]
