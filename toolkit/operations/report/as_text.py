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
    lines = [headline(record), *_answer_lines(record)]
    lines += [f"also       {_one_line(culprit)}" for culprit in record.also]
    lines += [f"hidden     {_one_line(step)}: {step.evidence}" for step in record.hidden]
    lines += [_option_line(option) for option in record.options]
    lines += [f"excluded   {each}" for each in record.excluded]
    if record.kept is not None:
        lines.append(f"cache      {record.kept.line}")
    lines += _minimal_lines(record, folder)
    if record.left:
        lines.append(f"left       {', '.join(record.left)}; --thorough goes on")
    if record.state != "finished":
        lines.append(f"state      {record.state}: it goes on, or was ended before it was done")
    if record.flakiness is not None:
        lines.append(f"flaky      {record.flakiness}")
    lines += [
        f"also seen  {one_line(str(other.signature), REASON_LENGTH)}; "
        f"ctk repro {quote(str(folder / other.case))}"
        for other in record.others
    ]
    lines += [f"problem    {with_log(problem, folder)}" for problem in record.problems]
    lines.append(f"cost       {_cost(record)}")
    return lines + [f"next       {step}" for step in next_steps(record, folder)]


def facts(record: Record, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line below the answer."""
    for line in summary(record, folder)[1:]:
        yield line[:10].strip(), line[11:]


def _answer_lines(record: Record) -> Iterator[str]:
    """Yield the failure, its place, and the proof."""
    if record.verdict.is_excused:
        yield f"difference {record.signature}"
    elif record.signature is not None:
        yield f"failure    {record.signature}"
        yield f"meaning    {MEANINGS[record.signature.kind]}"
    if record.end_to_end is not None and record.end_to_end.judgement.fails:
        yield from _end_to_end_lines(record.end_to_end, record)
    elif record.culprit is not None:
        yield from _culprit_lines(record.culprit, record)
    elif record.verdict is Verdict.PASSES:
        yield from [f"compared   {record.detail}"] * bool(record.detail)
    elif record.verdict is not Verdict.REPRODUCES:
        why = record.detail or record.reason
        yield from [f"why        {why}"] * bool(why)
    elif record.reason:
        yield f"culprit    unknown: {record.reason}"


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


def _end_to_end_lines(whole: EndToEnd, record: Record) -> Iterator[str]:
    yield f"layer      {whole.where}"
    if whole.layer is not None:
        yield f"stage      {PLACES[whole.layer]}"
    yield from [f"call       number {whole.call} of the program"] * bool(whole.call)
    yield from [f"line       {whole.line}"] * bool(whole.line)
    yield from (f"evidence   {each}" for each in whole.evidence)


def _one_line(culprit: CulpritRecord) -> str:
    place = f"{culprit.index_in_pass} of {culprit.rewrites_in_pass} in the pass: {culprit.rule}"
    return in_one_line(culprit.where, culprit.rewrite, place, culprit.nodes)


def _culprit_lines(culprit: CulpritRecord, record: Record) -> list[str]:
    label = label_of(culprit.where, is_kernel=culprit.kind == "kernel")
    lines = [f"{label:<10} {culprit.where}", f"stage      {PLACES[culprit.stage]}"]
    if culprit.rewrite is not None:
        lines.append(
            f"rewrite    number {culprit.rewrite} of the compile "
            f"({culprit.index_in_pass} of {culprit.rewrites_in_pass} in this pass): {culprit.rule}"
        )
    if culprit.nodes:
        lines.append(f"nodes      {list_names(culprit.nodes, most=_NAMED)}")
    if culprit.captured_nodes:
        from_nodes = list_names(culprit.captured_nodes, most=_NAMED)
        lines.append(f"from       {from_nodes} of the captured graph")
    if culprit.line:
        lines.append(f"line       {culprit.line}")
    if culprit.evidence:
        lines.append(f"evidence   {culprit.evidence}")
    if culprit.excerpt:
        lines.append(f"code       {culprit.excerpt[0]}")
        lines += [f"           {line}" for line in culprit.excerpt[1:]]
    proof = _proof(record, culprit) if record.confirmed else f"none: {record.reason}"
    lines.append(f"proof      {proof} (found by {record.found_by})")
    lines += [f"or         {each}; without it alone it passes too" for each in culprit.alternatives]
    return lines


def _proof(record: Record, culprit: CulpritRecord) -> str:
    if record.relation == "together":
        return "without any one of them the case passes"
    if record.relation == "independent":
        return "without all of them the case passes, without all but one it fails"
    how = phrase_left_out(culprit.where, is_kernel=culprit.kind == "kernel")
    return culprit.proof or record.reason or f"{how} the case passes"


def _option_line(option: OptionRecord) -> str:
    shows = "passes" if option.verdict.is_no_failure else "fails in another way"
    return f"option     it {shows} {option_words(option.option, option.value)}"


def _minimal_lines(record: Record, folder: Path) -> list[str]:
    minimal, repro, lines = record.minimal, record.repro, list[str]()
    if (program := record.program) is not None:
        stopped = "the fewest statements" if program.left == ("expressions",) else "stopped early"
        unfinished = "" if program.finished else f" ({stopped})"
        after = count_of(program.statements_after, "statement")
        sizes = f"{program.statements_before} -> {after}"
        lines.append(f"minimal    {sizes} of the program{unfinished}")
    if minimal is not None:
        reason = minimal.stopped_by
        stopped = ending(reason, minimal.unfinished) if reason else "not yet done"
        if reason == "time" and "nodes" not in record.left:
            stopped = "the fewest nodes"
        unfinished = "" if minimal.finished else f" ({stopped})"
        after = count_of(record.call_nodes.after or 0, "call node")
        place = str((folder / repro.path).parent) if repro.path is not None else str(folder)
        named = ", ".join(minimal.nodes) if len(minimal.nodes) <= _NAMED else place
        lines.append(f"minimal    {record.call_nodes.before} -> {after}{unfinished}: {named}")
        if minimal.other_failure is not None:
            lines.append(f"its own    {minimal.other_failure}; another failure than the case's")
    if repro.path is not None:
        ran = f"{repro.clean_run}, exit code {repro.exit_code}" if repro.clean_run else "not run"
        lines.append(f"repro      {folder / repro.path} ({ran})")
    return lines
