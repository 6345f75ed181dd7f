"""Diagnosis: all that is known of one failure, as JSON for programs and as text for people."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.formats.files import replace_file
from ctk.toolkit.oracle.judgement import Judgement

if TYPE_CHECKING:
    from ctk.toolkit.reduce.driver import Reduction
    from ctk.toolkit.repro.run import ReproRun

SCHEMA = 1
FILE = "diagnosis.json"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `diagnose` and `bisect-pass` found.

    Attributes:
        case: The case in question, as it was given.
        search: Who causes the failure, and how that is known.
        seconds: Time used by all of it.
        reduction: How the case was made smaller; None if that was not asked for.
        minimal_search: The bisection of the smallest case, to see that it is the same failure
            still.
        repro: Path of the emitted script; None if none was written.
        repro_run: What its run in a clean process showed.
    """

    case: Case
    search: Search
    seconds: float
    reduction: "Reduction | None" = None
    minimal_search: Search | None = None
    repro: Path | None = None
    repro_run: "ReproRun | None" = None

    @property
    def judgement(self) -> Judgement:
        return self.search.judgement


def to_json(diagnosis: Diagnosis, folder: Path | None = None) -> dict[str, object]:
    """Return the diagnosis as JSON values; paths are relative to `folder`."""
    search = diagnosis.search
    reduction = diagnosis.reduction
    run = diagnosis.repro_run
    signature = search.judgement.signature
    return {
        "schema": SCHEMA,
        "case": diagnosis.case.name,
        "target": diagnosis.case.target,
        "verdict": search.judgement.verdict.value,
        "detail": search.judgement.detail,
        "signature": _signature(signature) if signature else None,
        "culprit": _culprit(search.culprit, diagnosis) if search.culprit else None,
        "also": [_culprit(culprit, diagnosis) for culprit in search.also],
        "confirmed": search.confirmed,
        "found_by": search.found_by,
        "reason": search.reason,
        "compiles": search.compiles,
        "questions": reduction.questions if reduction else 0,
        "seconds": round(diagnosis.seconds, 2),
        "call_nodes": {
            "before": _call_nodes(diagnosis.case),
            "after": reduction.nodes_after if reduction else None,
        },
        "minimal": _minimal(diagnosis),
        "repro": {
            "path": _relative(diagnosis.repro, folder),
            "clean_run": run.says if run else None,
            "exit_code": run.exit_code if run else None,
        },
    }


def write_json(diagnosis: Diagnosis, folder: Path) -> Path:
    """Write `diagnosis.json` into a folder, atomically; return its path."""
    path = folder / FILE
    text = json.dumps(to_json(diagnosis, folder), indent=2, ensure_ascii=False)
    replace_file(path, (text + "\n").encode())
    return path


def summary(diagnosis: Diagnosis) -> list[str]:
    """Return the diagnosis for people, the answer on the first line."""
    search = diagnosis.search
    lines = [headline(diagnosis)]
    if search.judgement.signature is not None:
        lines.append(f"failure    {search.judgement.signature}")
    if search.culprit is not None:
        lines += _culprit_lines(search)
    elif search.reason:
        lines.append(f"culprit    unknown: {search.reason}")
    lines += [f"also       {culprit}" for culprit in search.also]
    lines += _minimal_lines(diagnosis)
    reduction = diagnosis.reduction
    questions = f", {reduction.questions} questions" if reduction else ""
    lines.append(f"cost       {search.compiles} compiles{questions}, {diagnosis.seconds:.1f} s")
    return lines


def headline(diagnosis: Diagnosis) -> str:
    """Return the answer in one line."""
    search, case = diagnosis.search, diagnosis.case
    what = f"{case.name} with target {case.target}"
    if search.judgement.signature is None or search.judgement.verdict.value != "reproduces":
        return f"{what}: {search.judgement.verdict.value}"
    if search.culprit is None:
        return f"{what} fails ({search.judgement.signature.kind}); no culprit found"
    proof = "confirmed" if search.confirmed else "not confirmed"
    return f"{what} fails because of {search.culprit.where} ({proof})"


def _culprit_lines(search: Search) -> list[str]:
    culprit = search.culprit
    assert culprit is not None
    kind = "kernel" if culprit.is_kernel else "pass"
    lines = [f"{kind:<10} {culprit.where}"]
    if culprit.rewrite is not None:
        lines.append(
            f"rewrite    number {culprit.rewrite} of the compile "
            f"({culprit.index} of {culprit.rewrites_in_pass} in this pass): {culprit.rule}"
        )
    if culprit.nodes:
        lines.append(f"nodes      {', '.join(culprit.nodes)}")
    if culprit.captured:
        lines.append(f"from       {', '.join(culprit.captured)} of the captured graph")
    if culprit.evidence:
        lines.append(f"evidence   {culprit.evidence}")
    proof = "without it alone the case passes" if search.confirmed else search.reason
    lines.append(f"proof      {proof} (found by {search.found_by})")
    return lines


def _minimal_lines(diagnosis: Diagnosis) -> list[str]:
    reduction, run = diagnosis.reduction, diagnosis.repro_run
    lines: list[str] = []
    if reduction is not None:
        unfinished = "" if reduction.finished else f" (stopped: {reduction.reason})"
        nodes = ", ".join(_call_names(reduction.best))
        lines.append(
            f"minimal    {reduction.nodes_before} -> {reduction.nodes_after} call nodes"
            f"{unfinished}: {nodes}"
        )
    if diagnosis.repro is not None and run is not None:
        lines.append(f"repro      {diagnosis.repro} ({run.says}, exit code {run.exit_code})")
    return lines


def _culprit(culprit: Culprit, diagnosis: Diagnosis) -> dict[str, object]:
    nodes = culprit.nodes
    if culprit.is_kernel and diagnosis.reduction is not None:
        nodes = tuple(_call_names(diagnosis.reduction.best))
    return {
        "stage": culprit.stage,
        "pass": culprit.name,
        "kind": "kernel" if culprit.is_kernel else "pass",
        "rewrite": culprit.rewrite,
        "index_in_pass": culprit.index,
        "rule": culprit.rule,
        "rewrites_in_pass": culprit.rewrites_in_pass,
        "nodes": list(nodes),
        "captured_nodes": list(culprit.captured),
        "evidence": culprit.evidence,
    }


def _signature(signature: Signature) -> dict[str, object]:
    names = ("kind", "exception", "where", "signal", "output", "message")
    return {name: getattr(signature, name) for name in names}


def _minimal(diagnosis: Diagnosis) -> dict[str, object] | None:
    reduction = diagnosis.reduction
    if reduction is None:
        return None
    again = diagnosis.minimal_search
    culprit = again.culprit if again else None
    return {
        "nodes": _call_names(reduction.best),
        "finished": reduction.finished,
        "stopped_by": reduction.reason,
        "culprit": culprit.where if culprit else None,
    }


def _call_names(case: Case) -> list[str]:
    return [node.name for node in case.graph.graph.nodes if node.op.startswith("call_")]


def _call_nodes(case: Case) -> int:
    from ctk.toolkit.reduce.size import call_nodes

    return call_nodes(case)


def _relative(path: Path | None, folder: Path | None) -> str | None:
    if path is None:
        return None
    if folder is not None and path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return str(path)
