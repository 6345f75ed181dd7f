"""diagnosis.json: the record of a diagnosis, written from the first failure on, and its reader.

Each step replaces the file atomically, so that a reader, also after a kill, always gets a whole
document; `state` is the progress of the diagnosis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from ctk.toolkit.bisect.culprit import Culprit, FoundBy, Relation
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import FailureOrigin, Signature
from ctk.toolkit.case.formats.checked_types import InnerPath, Line
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.schema import document, read_document, write_document
from ctk.toolkit.case.graphs.places import Places
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.diagnosis import (
    Diagnosis,
    KeptEntry,
    OtherFailure,
    ProgramSize,
    State,
)
from ctk.toolkit.oracle.repeated_runs import Flakiness
from ctk.toolkit.reduce.driver import Reason
from ctk.toolkit.reduce.size import call_nodes
from ctk.toolkit.repro.run import Outcome

SCHEMA: Final = 2
FILE = "diagnosis.json"


@document
@dataclass(frozen=True, slots=True)
class CulpritRecord:
    """The cause of a failure, as `ctk.toolkit.bisect.culprit.Culprit`.

    Attributes:
        stage: Where in the pipeline.
        pass_: Name of the pass or kernel.
        kind: Which of the two it is.
        rewrite: Number of the guilty rewrite in the whole compile; null for the pass as a whole.
        index_in_pass: Its place among the rewrites of the pass, from 1.
        rule: The rule of that rewrite.
        rewrites_in_pass: How many rewrites the pass made.
        nodes: The nodes that the rewrite touched, or the first wrong one.
        captured_nodes: The nodes of the captured graph that these came from.
        evidence: The measured mismatch or the exception, one line.
        excerpt: The lines of the generated kernel that compute the first wrong value, below the
            kernel's id; none where that is not known.
        line: `FILE:LINE` of the user's program: of the last captured node, or the line to blame
            where no graph shows the failure; empty if unknown.
        alternatives: Other suspects (`stage/name`) without any one of which alone the case passes
            too, and which nothing shows to be innocent; none for a unique culprit.
        proof: The counterfactual in words, where more is left out than the culprit names.
    """

    stage: FailureOrigin
    pass_: Line
    kind: Literal["pass", "kernel"]
    rewrite: int | None
    index_in_pass: int | None
    rule: Line
    rewrites_in_pass: int
    nodes: tuple[Line, ...]
    captured_nodes: tuple[Line, ...]
    evidence: Line
    excerpt: tuple[Line, ...]
    line: Line = ""
    alternatives: tuple[Line, ...] = ()
    proof: Line = ""

    @property
    def where(self) -> str:
        return f"{self.stage}/{self.pass_}"


@document
@dataclass(frozen=True, slots=True)
class OptionRecord:
    """An option of the target with which alone the case shows something else.

    Attributes:
        option: Its name.
        value: Its value as `--config` takes it; null: not set, though the case sets it.
        verdict: Of the case with that option.
    """

    option: Line
    value: Line | None
    verdict: Verdict


@document
@dataclass(frozen=True, slots=True)
class CallNodes:
    """Call nodes of the case as it was given, and of the smallest that fails; null if unknown."""

    before: int
    after: int | None


@document
@dataclass(frozen=True, slots=True)
class MinimalRecord:
    """The smallest case.

    Attributes:
        nodes: Its call nodes.
        finished: Whether no single edit can make it smaller.
        stopped_by: Why the search ended; null while it goes on.
        culprit: Who is guilty of it, for comparison.
        unfinished: Steps that have not tried each of their edits on it: `STEP`, or `STEP: why`.
        other_failure: Its failure, where that differs from the case's (a reduction with
            `--same-failure any`).
    """

    nodes: tuple[Line, ...]
    finished: bool
    stopped_by: Reason | None
    culprit: Line | None
    unfinished: tuple[Line, ...] = ()
    other_failure: Signature | None = None


@document
@dataclass(frozen=True, slots=True)
class ReproRecord:
    """The emitted script, relative to the folder, and the result of its run in a clean process."""

    path: InnerPath | None
    clean_run: Outcome | None
    exit_code: int | None


@document
@dataclass(frozen=True, slots=True)
class OtherRecord:
    """Another failure that was met; its case, relative to the folder."""

    signature: Signature
    case: Line


@document
@dataclass(frozen=True, slots=True)
class Record:
    """The content of `diagnosis.json`.

    Attributes:
        case: Name of the case.
        target: Its target.
        state: How far the diagnosis is.
        verdict: Of the case, compiled as it is.
        detail: More about the verdict.
        signature: The failure, if there is one.
        culprit: The cause of it, if known.
        also: Further culprits, each proved to be needed.
        relation: How several culprits belong together; null for one.
        hidden: Steps that change values although the results agree; none where they differ.
        options: Options of the target that change the verdict; none before a reduction.
        excluded: The excluded causes, a sentence each.
        confirmed: Whether leaving out the culprit, and nothing else, makes the case pass.
        found_by: How the culprit was found.
        reason: Why there is no culprit or no confirmation.
        compiles: Compiles that the bisection used.
        option_compiles: Compiles that were used to see which options matter.
        questions: Questions that the reduction asked.
        remembered: Questions of the reduction that an earlier, resumed run had asked.
        seconds: Time used so far.
        call_nodes: The size of the case.
        minimal: The smallest case so far; null before a reduction.
        repro: The emitted script.
        problems: The errors that did not end the diagnosis, one sentence each.
        end_to_end: The comparison of the program's compiled calls with its eager ones; null for a
            case, and where a graph shows the failure.
        program: How small the program became, where no graph shows the failure.
        kept: The entries of the compile in the user's persistent cache; null for none.
        decided_by: The command or function of the user that decides; empty where ctk compares.
        flakiness: How often the case fails, and how likely the reduction has made an error; null
            for a failure that always shows.
        others: Other failures that the reduction met, each kept as a case.
        left: The parts for which the time was too short: `nodes`, `sizes`, `values`, `options`.
        schema: Version of this document.
    """

    case: Line
    target: Line
    state: State
    verdict: Verdict
    detail: Line
    signature: Signature | None
    culprit: CulpritRecord | None
    also: tuple[CulpritRecord, ...]
    relation: Relation | None
    hidden: tuple[CulpritRecord, ...]
    options: tuple[OptionRecord, ...]
    excluded: tuple[Line, ...]
    confirmed: bool
    found_by: FoundBy | None
    reason: Line
    compiles: int
    option_compiles: int
    questions: int
    remembered: int
    seconds: float
    call_nodes: CallNodes
    minimal: MinimalRecord | None
    repro: ReproRecord
    problems: tuple[Line, ...]
    end_to_end: EndToEnd | None = None
    program: ProgramSize | None = None
    kept: KeptEntry | None = None
    decided_by: Line = ""
    flakiness: Flakiness | None = None
    others: tuple[OtherRecord, ...] = ()
    left: tuple[Line, ...] = ()
    schema: Literal[2] = SCHEMA


def record_of(diagnosis: Diagnosis) -> Record:
    """Return the record of a diagnosis; paths in it are relative to its folder."""
    search, reduction, run = diagnosis.search, diagnosis.reduction, diagnosis.repro_run
    smallest, asked = diagnosis.smallest, reduction or diagnosis.program
    return Record(
        case=diagnosis.name,
        target=diagnosis.target,
        state=diagnosis.state,
        verdict=diagnosis.judgement.verdict,
        detail=diagnosis.judgement.detail,
        signature=diagnosis.judgement.signature,
        culprit=_culprit(search.culprit, diagnosis) if search.culprit else None,
        also=tuple(_culprit(culprit, diagnosis) for culprit in search.also),
        relation=search.relation,
        hidden=tuple(_culprit(culprit, diagnosis) for culprit in search.hidden),
        options=tuple(OptionRecord(o.option, o.value, o.verdict) for o in search.options),
        excluded=search.excluded,
        confirmed=search.confirmed,
        found_by=search.found_by,
        reason=search.reason,
        compiles=search.compiles,
        option_compiles=search.option_compiles,
        questions=asked.questions if asked else 0,
        remembered=reduction.remembered if reduction else 0,
        seconds=round(diagnosis.seconds, 2),
        call_nodes=CallNodes(
            call_nodes(diagnosis.case) if diagnosis.case else 0,
            call_nodes(smallest) if smallest else None,
        ),
        minimal=_minimal(diagnosis),
        repro=ReproRecord(
            _relative(diagnosis.repro, diagnosis.folder),
            run.outcome if run else None,
            run.exit_code if run else None,
        ),
        problems=diagnosis.problems,
        end_to_end=diagnosis.end_to_end,
        program=diagnosis.program,
        kept=diagnosis.kept,
        decided_by=diagnosis.decided_by,
        flakiness=reduction.flakiness if reduction else None,
        others=tuple(_other(other, diagnosis.folder) for other in diagnosis.others),
        left=diagnosis.left,
    )


def write_json(diagnosis: Diagnosis, folder: Path) -> Path:
    """Write `diagnosis.json` into a folder, in one step; return its path."""
    path = folder / FILE
    record = record_of(replace(diagnosis, folder=folder))
    write_text(path, write_document(record))
    return path


def read_json(folder: Path) -> Record:
    """Read the `diagnosis.json` of a folder.

    Raises:
        CaseError: It is missing, damaged, or of another ctk.
    """
    return read_document(Record, folder / FILE, next_step="run ctk diagnose again", schema=SCHEMA)


def _culprit(culprit: Culprit, diagnosis: Diagnosis) -> CulpritRecord:
    """Return a culprit; for a kernel that hides its nodes, those of the smallest case stand."""
    nodes: Sequence[str] = culprit.nodes
    if culprit.is_kernel and not nodes and diagnosis.smallest is not None:
        nodes = _call_names(diagnosis.smallest)
    return CulpritRecord(
        stage=culprit.stage,
        pass_=culprit.name,
        kind="kernel" if culprit.is_kernel else "pass",
        rewrite=culprit.rewrite,
        index_in_pass=culprit.index,
        rule=culprit.rule,
        rewrites_in_pass=culprit.rewrites_in_pass,
        nodes=tuple(nodes),
        captured_nodes=culprit.captured,
        evidence=culprit.evidence,
        excerpt=tuple(culprit.excerpt.splitlines()),
        line=culprit.line or _line_of(culprit.captured, diagnosis.case),
        alternatives=culprit.alternatives,
        proof=culprit.proof,
    )


def _line_of(names: Sequence[str], case: Case | None) -> str:
    """Return the place of the last of some nodes that has one; empty if unknown."""
    places = Places.of(case.graph).nodes if case is not None else {}
    return next((places[name][0] for name in reversed(names) if name in places), "")


def _minimal(diagnosis: Diagnosis) -> MinimalRecord | None:
    smallest, reduction, again = diagnosis.smallest, diagnosis.reduction, diagnosis.minimal_search
    if smallest is None:
        return None
    return MinimalRecord(
        nodes=_call_names(smallest),
        finished=reduction.finished if reduction else False,
        stopped_by=reduction.reason if reduction else None,
        culprit=again.culprit.where if again and again.culprit else None,
        unfinished=reduction.unfinished if reduction else (),
        other_failure=diagnosis.other_failure,
    )


def _other(found: OtherFailure, folder: Path | None) -> OtherRecord:
    return OtherRecord(found.signature, _relative(found.folder, folder) or "")


def _call_names(case: Case) -> tuple[str, ...]:
    return tuple(node.name for node in case.graph.graph.nodes if node.op.startswith("call_"))


def _relative(path: Path | None, folder: Path | None) -> str | None:
    if path is None:
        return None
    inside = folder is not None and path.is_relative_to(folder)
    return str(path.relative_to(folder) if inside and folder else path)
