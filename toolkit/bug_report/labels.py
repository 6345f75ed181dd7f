"""Title and labels of an issue, as those who sort the issues of PyTorch use them.

Source: `.github/label_to_label.yml` of pytorch/pytorch, and its rubric for the triage of
torch.compile: a label names the part in which the bug is, not every part on the way. Only labels
that exist there are used.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.walk import distinct_graphs
from ctk.toolkit.bug_report.ablation import Ablation
from ctk.toolkit.bug_report.subject import IssueSubject
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.graphs.callables import foreign_operators, modules_of_calls
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.as_json import CulpritRecord
from ctk.toolkit.processes.commands import describe_exit
from ctk.toolkit.targets import target_of

TITLE_LENGTH = 120
_NAMED = 3

_SILENT = ("module: correctness (silent)",)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of failure in an issue.

    Attributes:
        phrase: As a title names it.
        labels: Its labels.
        symptom: Words of a search; empty: the name of the kind.
    """

    phrase: str
    labels: tuple[str, ...] = ()
    symptom: str = ""


_KINDS: Mapping[FailureKind, _Kind] = {
    "compile-error": _Kind("{exception} while compiling"),
    "runtime-error": _Kind("compiled code raises {exception}"),
    "missing-error": _Kind(
        "compiled code does not raise the {exception} of eager",
        ("module: error checking",),
        "does not raise",
    ),
    "other-error": _Kind("compiled code raises another exception than eager"),
    "signal": _Kind("compiled code is killed by {signal}", ("module: crash",), "segfault"),
    "exit": _Kind("compiled code ends the process", ("module: crash",)),
    "timeout": _Kind("compile or compiled code hangs", (), "hang"),
    "memory": _Kind("compile or compiled code needs too much memory", ("module: memory usage",)),
    "accuracy": _Kind("wrong result", _SILENT, "wrong result"),
    "nan": _Kind(
        "NaN or Inf at other places than in eager", (*_SILENT, "module: NaNs and Infs"), "nan"
    ),
    "dtype": _Kind("result has another dtype than in eager", (*_SILENT, "module: type promotion")),
    "shape": _Kind("result has another shape than in eager", _SILENT),
    "stride": _Kind("result has other strides than in eager", _SILENT),
    "structure": _Kind("other number or nesting of results than in eager", _SILENT),
    "alias": _Kind("results alias other tensors than in eager", _SILENT),
    "requires-grad": _Kind("requires_grad of a result differs from eager", _SILENT),
    "state": _Kind("state after the call differs from eager", _SILENT),
    "slow": _Kind("compiled code is slower than eager", ("module: performance",)),
    "peak-memory": _Kind(
        "compiled code needs more memory than eager", ("module: memory usage",), "memory"
    ),
    "slow-compile": _Kind("compile takes too long", ("module: compile-time",), "compile time"),
    "oracle": _Kind("oracle"),
}


def phrase_of(signature: Signature) -> str:
    """Return a kind of failure as a title names it."""
    killed = describe_exit(-signature.signal).removeprefix("signal ") if signature.signal else ""
    return _KINDS[signature.kind].phrase.format(
        exception=signature.exception or "exception", signal=killed
    )


def symptom_of(signature: Signature) -> str:
    """Return words of a search for a kind of failure; an exception has its own name instead."""
    kind = signature.kind
    return _KINDS[kind].symptom or ("" if signature.exception else kind)


@dataclass(frozen=True, slots=True)
class Naming:
    """Title and labels of one issue.

    Attributes:
        component: The part at fault, as the title has it in brackets.
        labels: The first `module: ...` one is the part at fault.
    """

    title: str
    component: str
    labels: tuple[str, ...]

    @property
    def owner(self) -> str:
        """The label for the first line of a test."""
        return next((each for each in self.labels if each.startswith("module: ")), "oncall: pt2")


def name_issue(subject: IssueSubject, ablation: Ablation | None, other_owner: str) -> Naming:
    """Return title and labels; a bug of another owner has no labels of PyTorch."""
    component, parts = _component(subject, ablation)
    operators = operator_names(subject.case.graph) if subject.case is not None else ()
    what = phrase_of(subject.signature)
    whole = subject.whole
    where = f" ({whole.cause})" if whole is not None and whole.cause else ""
    source = _guilty_source(whole)
    what = f"{what}{where}{_of_dtype(subject)}" + f": {source}" * bool(source)
    names = f"{', '.join(guilty_first(subject)[:_NAMED])}: " if operators else ""
    title = one_line(f"[{component}] {names}{what}", TITLE_LENGTH)
    if other_owner:
        return Naming(title, component, ())
    labels = dict.fromkeys((*parts, *_KINDS[subject.signature.kind].labels, *_more(subject)))
    oncall = () if "oncall: jit" in labels else ("oncall: pt2",)
    return Naming(title, component, (*oncall, *labels))


def _guilty_source(whole: EndToEnd | None) -> str:
    """Return the guilty line of a program, which its evidence quotes; empty for none."""
    quoted = re.search(r"`([^`]+)`", " ".join(whole.evidence)) if whole is not None else None
    return quoted[1] if quoted else ""


def _of_dtype(subject: IssueSubject) -> str:
    """Return the dtype of all inputs, if it is an unusual one: ` (uint8)`."""
    values = subject.case.inputs if subject.case is not None else ()
    dtypes = {str(each.dtype)[6:] for each in values if isinstance(each, torch.Tensor)}
    return f" ({dtypes.pop()})" if len(dtypes) == 1 and dtypes != {"float32"} else ""


def guilty_first(subject: IssueSubject) -> list[str]:
    """Return the names of the operators of a case, behind that of the culprit.

    lowered/lower.aten.sum.default           sum
    joint/fuse_attention._sfdp_pattern_28    fuse_attention
    """
    names = operator_names(subject.case.graph) if subject.case is not None else ()
    guilty = _guilty_name(subject.culprit) if subject.culprit and names else ""
    return [each for each in dict.fromkeys([guilty, *names]) if each]


def _guilty_name(culprit: CulpritRecord) -> str:
    operator = re.search(r"\baten\.(\w+)", culprit.pass_)
    if operator is not None:
        return operator[1]
    if culprit.stage not in ("pre_grad", "joint", "forward", "backward", "frozen"):
        return ""
    family, _, rule = culprit.pass_.partition("#")[0].partition(".")
    return rule if rule and not rule.startswith("_") and "." not in rule else family


def operator_names(gm: GraphModule) -> tuple[str, ...]:
    """Return the operators of a graph and its sub-graphs as users know them: `sum`, `copysign`."""
    names: dict[str, None] = {}
    for graph in distinct_graphs(gm):
        for node in graph.graph.nodes:
            if node.op in ("call_function", "call_method"):
                name = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
                names[name] = None
    return tuple(name for name in names if name not in ("getitem",)) or tuple(names)


def _component(subject: IssueSubject, ablation: Ablation | None) -> tuple[str, tuple[str, ...]]:
    """Return the part at fault: its name for the title, and its labels."""
    target, culprit = subject.target, subject.culprit
    whole = subject.whole
    if whole is not None:
        return {
            "dynamo": ("dynamo", ("module: dynamo",)),
            "dispatch": ("aotdispatch", ("module: aotdispatch",)),
            "export": ("export", ("oncall: export",)),
        }.get(whole.layer or "", (subject.target_name, _of_target(target)))
    stage = culprit.stage if culprit is not None else ""
    step = culprit.pass_.partition(".")[0] if culprit is not None and stage == "dispatch" else ""
    if step == "decompose":
        return "decomposition", ("module: decompositions", *_of_target(target))
    if step == "meta" or stage == "operator":
        return "fake tensor", ("module: fakeTensor", "module: pt2-dispatcher")
    if step.startswith("functionalize"):
        return "functionalization", ("module: functionalization", "module: pt2-dispatcher")
    first = ablation.backend if ablation is not None else None
    if first == "eager":
        return "dynamo", ("module: dynamo",)
    if stage == "dispatch" or (first or "").startswith("aot_eager"):
        return "aotdispatch", ("module: aotdispatch", "module: pt2-dispatcher")
    return subject.target_name, _of_target(target)


def _of_target(target: str) -> tuple[str, ...]:
    return {
        "inductor": ("module: inductor",),
        "aot_inductor": ("module: aotinductor", "oncall: export"),
        "cudagraphs": ("module: cuda graphs",),
        "torchscript": ("oncall: jit",),
        "torchscript_frozen": ("oncall: jit",),
    }.get(target, ())


def _more(subject: IssueSubject) -> Iterator[str]:
    """Yield labels of the features that a case uses."""
    case, culprit = subject.case, subject.culprit
    if case is None:
        return
    is_lowered = culprit is not None and culprit.stage == "lowered"
    if is_lowered and target_of(case.target).settings and _is_on_cpu(case):
        yield "oncall: cpu inductor"
    if case.dynamic:
        yield "module: dynamic shapes"
    if modules_of_calls(case.graph) or foreign_operators(case.graph):
        yield "module: custom-operators"
    if case.modes.autocast:
        yield "module: amp (automated mixed precision)"
    dtypes = {each.dtype for each in case.inputs if isinstance(each, torch.Tensor)}
    if torch.bfloat16 in dtypes:
        yield "module: bfloat16"
    if torch.float16 in dtypes:
        yield "module: half"


def _is_on_cpu(case: Case) -> bool:
    tensors = [each for each in case.inputs if isinstance(each, torch.Tensor)]
    return all(each.device.type == "cpu" for each in tensors) and not case.modes.default_device
