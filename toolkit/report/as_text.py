"""A diagnosis as text for people, made from its record, be that live or read from a file."""

from pathlib import Path

from ctk.toolkit.bisect.culprit import in_one_line
from ctk.toolkit.oracle.judgement import Verdict
from ctk.toolkit.report.as_json import CulpritRecord, Record


def summary(record: Record, folder: Path) -> list[str]:
    """Return the diagnosis in a folder for people, the answer on the first line."""
    lines = [headline(record)]
    if record.signature is not None:
        lines.append(f"failure    {record.signature}")
    if record.culprit is not None:
        lines += _culprit_lines(record.culprit, record)
    elif record.reason:
        lines.append(f"culprit    unknown: {record.reason}")
    lines += [f"also       {_one_line(culprit)}" for culprit in record.also]
    lines += _minimal_lines(record, folder)
    if record.state != "finished":
        lines.append(f"state      {record.state}: it goes on, or was ended before it was done")
    lines += [f"problem    {problem}" for problem in record.problems]
    questions = f", {record.questions} questions" if record.questions else ""
    if record.remembered:
        questions += f", {record.remembered} answers remembered"
    lines.append(f"cost       {record.compiles} compiles{questions}, {record.seconds:.1f} s")
    return lines


def headline(record: Record) -> str:
    """Return the answer in one line."""
    what = f"{record.case} with target {record.target}"
    if record.signature is None or record.verdict is not Verdict.REPRODUCES:
        return f"{what}: {record.verdict.value}"
    if record.culprit is None:
        known = "not bisected yet" if record.state == "failing" else "no culprit found"
        return f"{what} fails ({record.signature.kind}); {known}"
    proof = "confirmed" if record.confirmed else "not confirmed"
    return f"{what} fails because of {record.culprit.where} ({proof})"


def _one_line(culprit: CulpritRecord) -> str:
    place = f"{culprit.index_in_pass} of {culprit.rewrites_in_pass} in the pass: {culprit.rule}"
    return in_one_line(culprit.where, culprit.rewrite, place, culprit.nodes)


def _culprit_lines(culprit: CulpritRecord, record: Record) -> list[str]:
    lines = [f"{culprit.kind:<10} {culprit.where}"]
    if culprit.rewrite is not None:
        lines.append(
            f"rewrite    number {culprit.rewrite} of the compile "
            f"({culprit.index_in_pass} of {culprit.rewrites_in_pass} in this pass): {culprit.rule}"
        )
    if culprit.nodes:
        lines.append(f"nodes      {', '.join(culprit.nodes)}")
    if culprit.captured_nodes:
        lines.append(f"from       {', '.join(culprit.captured_nodes)} of the captured graph")
    if culprit.evidence:
        lines.append(f"evidence   {culprit.evidence}")
    proof = "without it alone the case passes" if record.confirmed else record.reason
    lines.append(f"proof      {proof} (found by {record.found_by})")
    return lines


def _minimal_lines(record: Record, folder: Path) -> list[str]:
    minimal, repro, lines = record.minimal, record.repro, list[str]()
    if minimal is not None:
        stopped = minimal.stopped_by or "not yet done"
        unfinished = "" if minimal.finished else f" (stopped: {stopped})"
        lines.append(
            f"minimal    {record.call_nodes.before} -> {record.call_nodes.after} call nodes"
            f"{unfinished}: {', '.join(minimal.nodes)}"
        )
    if repro.path is not None:
        ran = f"{repro.clean_run}, exit code {repro.exit_code}" if repro.clean_run else "not run"
        lines.append(f"repro      {folder / repro.path} ({ran})")
    return lines
