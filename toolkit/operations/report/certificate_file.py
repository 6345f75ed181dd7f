"""certificate.json beside a minimal case: the outcome of each edit that would make it smaller.

A digest of the manifest identifies the case; the manifest has a hash of every other file. A
reduction that ended early also writes one, with the steps that have edits left to try.

    case/certificate.json    {"stopped_by": "minimal", "unfinished": [], "refusals": [...], ...}
    neighbour/               the closest case that passes, beside the case
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from ctk.compiler.errors import CaseError
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
from ctk.toolkit.case.manifest import MANIFEST, check_files, read_manifest
from ctk.toolkit.reduce.certificate import Refusal
from ctk.toolkit.reduce.driver import Reason, Reduction

CERTIFICATE = "certificate.json"
NEIGHBOUR = "neighbour"
SCHEMA: Final = 1

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
