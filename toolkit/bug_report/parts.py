"""The parts of an issue as values: `bug_report` fills them, `issue_text` writes them."""

from dataclasses import dataclass
from pathlib import Path

from ctk.toolkit.bug_report.ablation import Ablation
from ctk.toolkit.bug_report.labels import Naming
from ctk.toolkit.bug_report.regression_test import RegressionTest
from ctk.toolkit.bug_report.similar import Query
from ctk.toolkit.bug_report.subject import IssueSubject
from ctk.toolkit.bug_report.torch_verdict import TorchVerdict


@dataclass(frozen=True, slots=True)
class IssueRepro:
    """The script of an issue, and its run in a clean process.

    Attributes:
        text: The whole short script; of an attached one, the program in it.
        output: Of the run, without secrets and paths of this machine.
        shows: Whether the run showed the failure.
        attached: The files to attach, where the script is not short.
        why: Why it is not short; empty for a short one.
    """

    text: str
    output: str
    shows: bool
    attached: tuple[Path, ...] = ()
    why: str = ""


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
    repro: IssueRepro
    versions: str
    other_owner: str = ""
    torch: TorchVerdict | None = None
    ablation: Ablation | None = None
    test: RegressionTest | None = None
    queries: tuple[Query, ...] = ()
    body: str = ""
