"""certificate.json beside a minimal case: the outcome of each edit that would make it smaller.

A digest of the manifest identifies the case; the manifest has a hash of every other file. A
reduction that ended early also writes one, with the steps that have edits left to try.

    case/certificate.json    {"stopped_by": "minimal", "unfinished": [], "refusals": [...], ...}
    neighbour/               the closest case that passes, beside the case

For people it is sorted node by node, each with the outcome of the edits that would change it:

    mul: float32[8] = aten.mul.Tensor(x, 2)
      without mul                passes          remove
      x in place of mul          not asked       remove    leaves no program that makes sense
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from ctk.compiler.errors import CaseError, count_of
from ctk.compiler.fx.types import type_text
from ctk.compiler.fx.walk import graphs_by_path, input_names
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_replacement import whole_case
from ctk.toolkit.case.formats.checked_types import Line, Sha256
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.limits import CERTIFICATE_NBYTES
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH, one_line
from ctk.toolkit.case.formats.schema import document, encode, read_document, write_document
from ctk.toolkit.case.formats.strict_json import dump_json
from ctk.toolkit.case.graphs.graph_lines import node_line
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.manifest import MANIFEST, check_files, read_manifest
from ctk.toolkit.operations.report.phrases import ending
from ctk.toolkit.reduce.certificate import Refusal
from ctk.toolkit.reduce.driver import Reason, Reduction

CERTIFICATE = "certificate.json"
NEIGHBOUR = "neighbour"
SCHEMA: Final = 1

THE_REST = "the case as a whole: results, sizes, options, passes, modes"
NOT_ASKED = "not asked"

MOST = 10_000
"""Refusals that are kept: a reduction that was ended early on a large graph has more."""


@document
@dataclass(frozen=True, slots=True)
class Remaining:
    """A node that remains: its name, those of sub-graphs with their path, and its line."""

    name: Line
    line: Line


@document
@dataclass(frozen=True, slots=True)
class CertificateRecord:
    """The content of `certificate.json`.

    Attributes:
        digest: Of the case that it is about.
        stopped_by: Why the search ended.
        unfinished: Steps that have not tried each of their edits on this case: `STEP`, or
            `STEP: why`.
        nodes: Of the minimal case: inputs, constants, calls, results, in order.
        refusals: The outcome of each edit.
        left_out: How many more refusals there are.
        neighbour: The edit that gives the closest case that passes; null if none did.
        schema: Version of this document.
    """

    digest: Sha256
    stopped_by: Reason
    unfinished: tuple[Line, ...]
    nodes: tuple[Remaining, ...]
    refusals: tuple[Refusal, ...]
    left_out: int
    neighbour: Refusal | None
    schema: Literal[1] = SCHEMA

    @property
    def is_minimal(self) -> bool:
        """Whether it is whole: every step has tried each of its edits."""
        return self.stopped_by == "minimal" and not self.unfinished


def certificate_of(reduction: Reduction, digest: str) -> CertificateRecord:
    """Return the record of a reduction whose best case has this digest."""
    kept = reduction.certificate[:MOST]
    return CertificateRecord(
        digest=digest,
        stopped_by=reduction.reason,
        unfinished=reduction.unfinished,
        nodes=tuple(_remaining(reduction.best)),
        refusals=tuple(map(_short, kept)),
        left_out=len(reduction.certificate) - len(kept),
        neighbour=reduction.neighbour_edit and _short(reduction.neighbour_edit),
    )


def write_certificate(reduction: Reduction, folder: Path) -> None:
    """Write the certificate of a reduction into the folder that holds its best case."""
    record = certificate_of(reduction, digest_of_case(folder))
    write_text(folder / CERTIFICATE, write_document(record))


def read_certificate(folder: Path) -> CertificateRecord:
    """Read the certificate of a case.

    Raises:
        CaseError: There is none, it is damaged or of another ctk, it is of another case, or a file
            of the case is missing or was changed.
    """
    next_step = f"reduce it again: ctk minify {quote(str(folder))}"
    record = read_document(
        CertificateRecord,
        folder / CERTIFICATE,
        next_step=next_step,
        schema=SCHEMA,
        limit=CERTIFICATE_NBYTES,
    )
    if record.digest != digest_of_case(folder):
        raise CaseError(
            f"{folder / CERTIFICATE} is of another case: the {MANIFEST} beside it has changed "
            f"since; {next_step}"
        )
    whole = whole_case(folder)
    try:
        check_files(whole, read_manifest(whole))
    except CaseError as error:
        raise CaseError(f"{folder / CERTIFICATE} is of another case: {error}") from error
    return record


def digest_of_case(folder: Path) -> str:
    """Return a digest of the manifest of a case, which has the hash of every other file.

    The author and the time in the manifest do not count.
    """
    manifest = encode(read_manifest(whole_case(folder)))
    del manifest["provenance"]
    return hashlib.sha256(dump_json(manifest).encode()).hexdigest()


def _short(refusal: Refusal) -> Refusal:
    return replace(refusal, why=one_line(refusal.why, REASON_LENGTH))


def _remaining(case: Case) -> Iterator[Remaining]:
    inputs = dict(zip(input_names(case.graph), case.inputs, strict=True))
    for path, graph in graphs_by_path(case.graph).items():
        for node in graph.graph.nodes:
            if node.op == "placeholder" and not path:
                line = f"{node.name}: {type_text(inputs[node.name])} = input"
            else:
                line = node_line(node)
            yield Remaining(f"{path}.{node.name}" if path else node.name, line)


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
    return f"{state}: {count_of(tried, 'edit')} tried, {asked} of them asked about, none reproduces"


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
