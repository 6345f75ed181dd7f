"""The text of an issue, with the fields of PyTorch's form for bugs of torch.compile.

    ### 🐛 Describe the bug     the failure, the repro, the culprit, the ablation, a test
    ### Error logs              the output of the repro
    ### Versions                collect_env

Source: `.github/ISSUE_TEMPLATE/pt2-bug-report.yml` of pytorch/pytorch. GitHub writes the same
headings when its form is sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ctk.compiler.errors import count_of
from ctk.toolkit.bug_report.ablation import Ablation
from ctk.toolkit.bug_report.labels import Naming, phrase_of
from ctk.toolkit.bug_report.markdown import code, cut_log, details, fence, table
from ctk.toolkit.bug_report.script_check import CheckedScript
from ctk.toolkit.bug_report.short_script import COMPARED
from ctk.toolkit.bug_report.similar import Query
from ctk.toolkit.bug_report.subject import IssueSubject
from ctk.toolkit.bug_report.torch_verdict import TorchVerdict
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.operations.report.as_json import CulpritRecord, OptionRecord, Record
from ctk.toolkit.operations.report.phrases import MEANINGS, PLACES, phrase_left_out
from ctk.toolkit.repro.header import shorten_paths
from ctk.toolkit.repro.script import literal

HEADINGS = ("🐛 Describe the bug", "Error logs", "Versions")
_NAMED = 6


@dataclass(frozen=True, slots=True)
class BugReport:
    """One failure as an issue for PyTorch.

    Attributes:
        body: The issue as Markdown, with the fields of PyTorch's torch.compile form.
        other_owner: Who else is responsible, as Markdown; empty for a bug of PyTorch.
        torch: The verdict of `torch._dynamo.utils.same`; None where no results are compared.
        ablation: None for a whole program, whose layer the diagnosis has.
        test: None where the repro is not short.
        queries: Searches for the same issue, the strictest first.
    """

    subject: IssueSubject
    naming: Naming
    repro: CheckedScript
    versions: str
    other_owner: str = ""
    torch: TorchVerdict | None = None
    ablation: Ablation | None = None
    test: CheckedScript | None = None
    queries: tuple[Query, ...] = ()
    body: str = ""


def write_issue(report: BugReport) -> str:
    """Return the body of an issue as Markdown."""
    describe, error, versions = HEADINGS
    parts = [
        f"### {describe}",
        *_describe(report),
        f"### {error}",
        fence(cut_log(report.repro.output)),
        f"### {versions}",
        fence(report.versions),
    ]
    return "\n\n".join(parts) + "\n"


def _describe(report: BugReport) -> Iterator[str]:
    yield _summary(report)
    if report.other_owner:
        yield f"**This is not a bug of PyTorch**: {report.other_owner}."
    yield from _repro(report)
    yield from _cause(report)
    yield from _verdicts(report)
    yield from _ablation(report)
    yield from _test(report)
    yield from _origin(report.subject.record)
    if report.naming.labels:
        yield f"Suggested labels: {', '.join(map(code, report.naming.labels))}"


def _summary(report: BugReport) -> str:
    signature, target = report.subject.signature, report.subject.target_name
    at = f" at {code(signature.output)}" if signature.output else ""
    is_reduced = report.subject.whole is not None  # the message has numbers of the whole program
    shown = "" if is_reduced else shorten_paths(signature.message)
    seen = f" ({code(shown)})" if shown else ""
    call = f"torch.compile(backend={literal(target)})"
    return (
        f"Under {code(call)} this program differs from eager: "
        f"{_inert(phrase_of(signature))}{at}{seen}."
    )


def _repro(report: BugReport) -> Iterator[str]:
    repro = report.repro
    if not repro.why:
        yield "Minimal repro, which needs torch only:"
        yield fence(repro.text, "python")
        return
    files = ", ".join(code(path.name) for path in repro.attached)
    attached = f"The repro is attached ({files})" if files else "The repro is a case of ctk"
    shown = "" if repro.shows else " Its last run did not show the failure again."
    yield f"{attached}, because {_inert(repro.why)}.{shown} Its program:"
    yield fence(repro.text, "python")


def _inert(text: str) -> str:
    """Return a sentence of ctk with foreign names in it: as code, if it may be read as markup."""
    return text if all(c.isalnum() or c in " ,.;:-()'\"" for c in text) else code(text)


def _cause(report: BugReport) -> Iterator[str]:
    record = report.subject.record
    if record is None or record.culprit is None:
        return
    culprit = record.culprit
    lines = [f"Culprit: {code(culprit.where)} ({PLACES[culprit.stage]})"]
    lines += _places(culprit, report.subject.signature)
    if report.subject.whole is not None:
        pass  # the lines of the ablation hold the proof
    elif record.confirmed:
        proof = culprit.proof or phrase_left_out(culprit.where, is_kernel=culprit.kind == "kernel")
        lines.append(f"Proof: {_inert(proof)}, the program agrees with eager")
    elif record.reason:
        lines.append(f"Not proved: {_inert(record.reason)}")
    lines += [f"Also guilty: {code(each.where)}" for each in record.also]
    lines += [
        f"{_option(each)} the program "
        f"{'agrees with eager' if each.verdict.is_no_failure else 'fails in another way'}"
        for each in record.options
    ]
    if record.flakiness is not None:
        lines.append(f"It does not fail in each run: {_inert(str(record.flakiness))}")
    yield "\n".join(f"- {line}." for line in lines)


def _option(option: OptionRecord) -> str:
    if option.value is None:
        return f"Without the option {code(option.option)}"
    return f"With the option {code(f'{option.option}={option.value}')}"


def _places(culprit: CulpritRecord, signature: Signature) -> Iterator[str]:
    """Yield where a culprit acts, and the evidence of it."""
    nodes = culprit.nodes or culprit.captured_nodes
    if nodes:
        more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
        yield f"At {', '.join(map(code, nodes[:_NAMED]))}{more}"
    if culprit.rule and not culprit.where.endswith(culprit.rule):
        yield f"Rule: {code(culprit.rule)}"
    # A difference has the numbers of the program before it was reduced.
    is_repeated = bool(signature.message) and signature.message in culprit.evidence
    if culprit.evidence and signature.kind not in COMPARED and not (is_repeated or culprit.line):
        yield f"Evidence: {code(shorten_paths(culprit.evidence))}"


def _verdicts(report: BugReport) -> Iterator[str]:
    verdict, signature = report.torch, report.subject.signature
    if verdict is None:
        return
    lines = [
        f"ctk: {code(signature.kind)} ({MEANINGS[signature.kind]})",
        f"{code('torch._dynamo.utils.same')}: {code(verdict.words)}",
    ]
    disagreement = verdict.disagreement(signature)
    lines += [f"They disagree: {disagreement}"] * bool(disagreement)
    yield "Verdicts of two comparisons with eager:\n\n" + "\n".join(f"- {each}" for each in lines)


def _ablation(report: BugReport) -> Iterator[str]:
    ablation, whole, culprit = report.ablation, report.subject.whole, report.subject.culprit
    nodes = f" at {', '.join(culprit.nodes[:_NAMED])}" if culprit and culprit.nodes else ""
    named = f"{culprit.where}{nodes}" if culprit else ""
    if ablation is not None:
        yield "Ablation (`reproduces`: it fails in the same way; `passes`: it agrees with eager):"
        rows = [(row.backend, row.without, row.answer) for row in ablation.rows]
        yield table(("backend", "left out or set", "verdict"), rows)
        yield fence(ablation.result(named))
    elif whole is not None:
        yield "Ablation (each backend plays the same calls as eager):"
        yield "\n".join(f"- {code(shorten_paths(each))}" for each in whole.evidence)
        backend = whole.backend or whole.target
        yield fence(Ablation((), backend).result(f"{whole.where} {whole.line}".strip()))


def _test(report: BugReport) -> Iterator[str]:
    test = report.test
    if test is None:
        return
    state = test.why or "it fails now, and passes without a compiler"
    yield details(f"Regression test ({state})", fence(test.text, "python"))


def _origin(record: Record | None) -> Iterator[str]:
    if record is None or record.call_nodes.after is None:
        return
    before, after = record.call_nodes.before, record.call_nodes.after
    if after >= before:
        return
    yield (
        f"The program was reduced by a tool, from {count_of(before, 'operation')} to {after}; "
        "the verdicts above are of the reduced one."
    )
