"""A diagnosis as text for people, made from its record, live or read from a file.

The failure, its place, the proof, the excluded causes, and the command for the next step:

    graph0 with target ctk fails because of joint/cse (confirmed)
    failure    accuracy at out0: ...
    meaning    the compiled result is wrong: ...
    pass       joint/cse                                      or `layer`, `culprit    unknown: ...`
    stage      the passes over forward and backward together
    proof      without it alone the case passes
    excluded   the 4 steps before joint/cse keep all 27 values
    next       python out/minimal/repro.py  # shows it again
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import count_of
from ctk.toolkit.bisect.culprit import in_one_line, option_words
from ctk.toolkit.bisect.suspects import list_names
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH, one_line
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.as_json import CulpritRecord, OptionRecord, Record
from ctk.toolkit.operations.report.next_steps import next_steps
from ctk.toolkit.operations.report.phrases import (
    MEANINGS,
    PLACES,
    VERDICTS,
    ending,
    label_of,
    phrase_left_out,
    with_log,
)

_NAMED = 12
"""How many nodes a line names; the record has all."""


def summary(record: Record, folder: Path) -> list[str]:
    """Return the diagnosis in a folder for people, the answer on the first line."""
    return [headline(record), *(f"{label:<10} {text}" for label, text in facts(record, folder))]


def facts(record: Record, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line below the answer."""
    yield from _answer(record)
    yield from (("also", _one_line(culprit)) for culprit in record.also)
    yield from (("hidden", f"{_one_line(step)}: {step.evidence}") for step in record.hidden)
    yield from (("option", _option(option)) for option in record.options)
    yield from (("excluded", each) for each in record.excluded)
    if record.kept is not None:
        yield "cache", record.kept.line
    yield from _minimal(record, folder)
    if record.left:
        yield "left", f"{', '.join(record.left)}; --thorough goes on"
    if record.state != "finished":
        yield "state", f"{record.state}: it goes on, or was ended before it was done"
    if record.flakiness is not None:
        yield "flaky", str(record.flakiness)
    for other in record.others:
        seen = one_line(str(other.signature), REASON_LENGTH)
        yield "also seen", f"{seen}; ctk repro {quote(str(folder / other.case))}"
    yield from (("problem", with_log(problem, folder)) for problem in record.problems)
    yield "cost", _cost(record)
    yield from (("next", str(step)) for step in next_steps(record, folder))


def _answer(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the failure, its place, and the proof."""
    if record.verdict.is_excused:
        yield "difference", str(record.signature)
    elif record.signature is not None:
        yield "failure", str(record.signature)
        yield "meaning", MEANINGS[record.signature.kind]
    if record.end_to_end is not None and record.end_to_end.judgement.fails:
        yield from _end_to_end(record.end_to_end)
    elif record.culprit is not None:
        yield from _culprit(record.culprit, record)
    elif record.verdict is Verdict.PASSES:
        yield from [("compared", record.detail)] * bool(record.detail)
    elif record.verdict is not Verdict.REPRODUCES:
        why = record.detail or record.reason
        yield from [("why", why)] * bool(why)
    elif record.reason:
        yield "culprit", f"unknown: {record.reason}"


def _cost(record: Record) -> str:
    questions = f", {count_of(record.questions, 'question')}" if record.questions else ""
    if record.remembered:
        questions += f", {count_of(record.remembered, 'answer')} remembered"
    options = f", {record.option_compiles} for options" if record.option_compiles else ""
    return f"{count_of(record.compiles, 'compile')}{options}{questions}, {record.seconds:.1f} s"


def headline(record: Record) -> str:
    """Return the answer in one line."""
    what = f"{record.case} with target {record.target}"
    whole = record.end_to_end
    if whole is not None and whole.judgement.fails:
        proof = "confirmed" if record.confirmed else "not confirmed"
        line = f", {whole.line}" if whole.line else ""
        what = f"{whole.program} with target {record.target}"
        return f"{what} fails in {whole.where}{line} ({proof})"
    if record.kept is not None and record.kept.alone_fails:
        gone = "removed" if record.kept.removed else "still there"
        return f"{what} fails only as the persistent cache has it ({gone}); recompiled, it passes"
    if record.hidden and record.verdict is Verdict.PASSES:
        steps = ", ".join(step.where for step in record.hidden)
        return f"{what}: the results agree, but {steps} changes values (hidden)"
    if record.signature is None or record.verdict is not Verdict.REPRODUCES:
        return f"{what}: {VERDICTS[record.verdict]}"
    if record.culprit is None:
        known = "not bisected yet" if record.state == "failing" else "no culprit found"
        return f"{what} fails ({record.signature.kind}); {known}"
    proof = "confirmed" if record.confirmed else "not confirmed"
    counts = Counter(each.where for each in (record.culprit, *record.also))
    culprits = " and ".join(
        where if count == 1 else f"{where} ({count_of(count, 'rewrite')})"
        for where, count in counts.items()
    )
    only = " together" if record.relation == "together" else ""
    return f"{what} fails because of {culprits}{only} ({proof})"


def _end_to_end(whole: EndToEnd) -> Iterator[tuple[str, str]]:
    yield "layer", whole.where
    if whole.layer is not None:
        yield "stage", PLACES[whole.layer]
    if whole.call:
        yield "call", f"number {whole.call} of the program"
    yield from [("line", whole.line)] * bool(whole.line)
    yield from (("evidence", each) for each in whole.evidence)


def _one_line(culprit: CulpritRecord) -> str:
    place = f"{culprit.index_in_pass} of {culprit.rewrites_in_pass} in the pass: {culprit.rule}"
    return in_one_line(culprit.where, culprit.rewrite, place, culprit.nodes)


def _culprit(culprit: CulpritRecord, record: Record) -> Iterator[tuple[str, str]]:
    yield label_of(culprit.where, is_kernel=culprit.kind == "kernel"), culprit.where
    yield "stage", PLACES[culprit.stage]
    if culprit.rewrite is not None:
        place = f"{culprit.index_in_pass} of {culprit.rewrites_in_pass} in this pass"
        yield "rewrite", f"number {culprit.rewrite} of the compile ({place}): {culprit.rule}"
    if culprit.nodes:
        yield "nodes", list_names(culprit.nodes, most=_NAMED)
    if culprit.captured_nodes:
        yield "from", f"{list_names(culprit.captured_nodes, most=_NAMED)} of the captured graph"
    if culprit.line:
        yield "line", culprit.line
    if culprit.evidence:
        yield "evidence", culprit.evidence
    yield from zip(("code", *[""] * len(culprit.excerpt)), culprit.excerpt, strict=False)
    proof = _proof(record, culprit) if record.confirmed else f"none: {record.reason}"
    yield "proof", f"{proof} (found by {record.found_by})"
    for each in culprit.alternatives:
        yield "or", f"{each}; without it alone it passes too"


def _proof(record: Record, culprit: CulpritRecord) -> str:
    if record.relation == "together":
        return "without any one of them the case passes"
    if record.relation == "independent":
        return "without all of them the case passes, without all but one it fails"
    how = phrase_left_out(culprit.where, is_kernel=culprit.kind == "kernel")
    return culprit.proof or record.reason or f"{how} the case passes"


def _option(option: OptionRecord) -> str:
    shows = "passes" if option.verdict.is_no_failure else "fails in another way"
    return f"it {shows} {option_words(option.option, option.value)}"


def _minimal(record: Record, folder: Path) -> Iterator[tuple[str, str]]:
    minimal, repro = record.minimal, record.repro
    if (program := record.program) is not None:
        stopped = "the fewest statements" if program.left == ("expressions",) else "stopped early"
        unfinished = "" if program.finished else f" ({stopped})"
        after = count_of(program.statements_after, "statement")
        yield "minimal", f"{program.statements_before} -> {after} of the program{unfinished}"
    if minimal is not None:
        reason = minimal.stopped_by
        stopped = ending(reason, minimal.unfinished) if reason else "not yet done"
        if reason == "time" and "nodes" not in record.left:
            stopped = "the fewest nodes"
        unfinished = "" if minimal.finished else f" ({stopped})"
        after = count_of(record.call_nodes.after or 0, "call node")
        place = str((folder / repro.path).parent) if repro.path is not None else str(folder)
        named = ", ".join(minimal.nodes) if len(minimal.nodes) <= _NAMED else place
        yield "minimal", f"{record.call_nodes.before} -> {after}{unfinished}: {named}"
        if minimal.other_failure is not None:
            yield "its own", f"{minimal.other_failure}; another failure than the case's"
    if repro.path is not None:
        ran = f"{repro.clean_run}, exit code {repro.exit_code}" if repro.clean_run else "not run"
        yield "repro", f"{folder / repro.path} ({ran})"
