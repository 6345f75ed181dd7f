"""The owner of a bug: PyTorch, or the author of a pass, backend, operator or option.

Known from the culprit and the target, so a wrong answer is one of a wrong diagnosis.
"""

import re

from ctk.compiler.errors import CtkError
from ctk.toolkit.bug_report.markdown import code
from ctk.toolkit.bug_report.subject import IssueSubject
from ctk.toolkit.case.carried_sources import plan_sources
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.trust.demands import HARMLESS, TORCH_NAMESPACES
from ctk.toolkit.operations.report.as_json import CulpritRecord
from ctk.toolkit.targets import target_of

_OF_OPERATOR = re.compile(r"^(?:operator/|\w+/(?:meta|trace|decompose|lower)\.)(?:trace\.)?(\w+)")
_PLANTED = "TESTING_ONLY"


def find_other_owner(subject: IssueSubject) -> str:
    """Return who else is responsible, as Markdown; empty for a bug of PyTorch."""
    case, culprit = subject.case, subject.culprit
    if case is not None:
        planted = next((option for option in case.config if _PLANTED in option), "")
        if planted:
            return f"the option {code(planted)} plants this failure on purpose, for tests"
    if culprit is not None and (operator := _foreign_operator(culprit)):
        return (
            f"the guilty operator is of the library {code(operator)}, not of PyTorch; report it "
            "to the author of that operator"
        )
    if case is not None and culprit is not None and (function := _guilty_function(case, culprit)):
        return (
            f"the guilty pass is {code(function)}, which the options name; report it to its author"
        )
    return "" if _is_below(subject) else _other_target(subject.target_name)


def _is_below(subject: IssueSubject) -> bool:
    """Return whether the failure shows before the target runs: in Dynamo or AOT dispatch."""
    whole = subject.whole
    return whole is not None and bool(whole.backend) and whole.backend != whole.target


def _foreign_operator(culprit: CulpritRecord) -> str:
    found = _OF_OPERATOR.match(culprit.where)
    return found[1] if found and found[1] not in TORCH_NAMESPACES else ""


def _guilty_function(case: Case, culprit: CulpritRecord) -> str:
    """Return the function in the options that is the guilty pass."""
    try:
        references = plan_sources(case).references
    except CtkError:
        return ""
    name = culprit.pass_.partition("#")[0]
    return next((each for each in references if each.rpartition(":")[2] in (name, f"{name}_")), "")


def _other_target(target: str) -> str:
    if target_of(target).is_kept:
        return "the compiler under test is ctk itself, not PyTorch; report it to ctk"
    if target in HARMLESS:
        return ""
    return f"the backend {code(target)} is not part of PyTorch; report it to its author"
