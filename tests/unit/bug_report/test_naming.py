"""Title, labels, owner and searches of an issue."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.bug_report.labels import guilty_first, name_issue, operator_names
from ctk.toolkit.bug_report.ownership import find_other_owner
from ctk.toolkit.bug_report.similar import similar_queries, stable_words
from ctk.toolkit.bug_report.subject import IssueSubject
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import FailureOrigin, Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.as_json import record_of
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from tests.helpers.repros import make_case

WRONG = Signature("accuracy", output="out0")


def subject_of(
    where: tuple[FailureOrigin, str] | None = None,
    signature: Signature = WRONG,
    *,
    target: str = "inductor",
    value: torch.Tensor | None = None,
    **changes: object,
) -> IssueSubject:
    value = torch.ones(2) if value is None else value
    torch.compiler.reset()
    case = make_case(lambda x: (x.abs().sum(),), value, target=target)
    case = replace(case, signature=signature, **changes)  # type: ignore[arg-type]  # fields by name
    culprit = Culprit(*where, Veto(), nodes=("sum_1",)) if where else None
    search = Search(Judgement(Verdict.REPRODUCES, signature), culprit, confirmed=True)
    return _subject(case, search)


def _subject(case: Case, search: Search) -> IssueSubject:
    signature = case.signature
    assert signature is not None
    return IssueSubject(Path(), signature, case, record=record_of(Diagnosis(case, search, 1.0)))


@pytest.mark.parametrize(
    ("where", "labels"),
    [
        (("lowered", "lower.aten.sum.default"), ("module: inductor", "oncall: cpu inductor")),
        (("joint", "fold"), ("module: inductor",)),
        (("dispatch", "decompose.aten.sum.default"), ("module: decompositions",)),
        (("dispatch", "meta.aten.sum.default"), ("module: fakeTensor", "module: pt2-dispatcher")),
        (("dispatch", "functionalize"), ("module: functionalization",)),
    ],
)
def test_labels_name_the_part_at_fault(
    where: tuple[FailureOrigin, str], labels: tuple[str, ...]
) -> None:
    found = name_issue(subject_of(where), None, "").labels
    assert found[0] == "oncall: pt2"
    assert set(labels) <= set(found) and "module: correctness (silent)" in found


def test_a_title_has_the_guilty_operator_first() -> None:
    subject = subject_of(("lowered", "lower.aten.sum.default"), value=torch.ones(2).to(torch.uint8))
    assert name_issue(subject, None, "").title == "[inductor] sum, abs: wrong result (uint8)"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("fuse_attention._sfdp_pattern_28", "fuse_attention"),
        ("misc_patterns.randperm_index_pattern#2", "randperm_index_pattern"),
        ("binary_folding.binary_folding_init.folded_op", "binary_folding"),
        ("reinplace", "reinplace"),
    ],
)
def test_a_guilty_pass_is_named_as_in_the_code_of_torch(name: str, word: str) -> None:
    assert guilty_first(subject_of(("joint", name))) == [word, "abs", "sum"]


def test_a_program_is_named_by_its_guilty_line() -> None:
    whole = EndToEnd(
        Judgement(Verdict.REPRODUCES, WRONG),
        layer="dynamo",
        cause="guards",
        target="inductor",
        evidence=("with net.py:3 `return x * b.k` run outside of Dynamo it passes",),
    )
    search = Search(Judgement(Verdict.REPRODUCES, WRONG))
    record = record_of(Diagnosis(None, search, 1.0, end_to_end=whole))
    subject = IssueSubject(Path(), WRONG, program="...", record=record)
    naming = name_issue(subject, None, "")
    assert naming.title == "[dynamo] wrong result (guards): return x * b.k"
    assert naming.labels[:2] == ("oncall: pt2", "module: dynamo")
    assert similar_queries(subject, naming.component)[0].words == "wrong result dynamo guards"


@pytest.mark.parametrize(
    ("where", "changes", "words"),
    [
        (None, {}, ""),
        (None, {"target": "aot_eager"}, ""),
        (None, {"target": "ctk"}, "ctk itself"),
        (None, {"target": "net.py:wrong"}, "`net.py:wrong` is not part of PyTorch"),
        (None, {"target": "tvm"}, "`tvm` is not part of PyTorch"),
        (("operator", "trace.mine.scale"), {}, "library `mine`"),
        (("dispatch", "meta.mine.scale.default"), {}, "library `mine`"),
        (("dispatch", "meta.aten.sum.default"), {}, ""),
        (None, {"config": {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}}, "on purpose"),
    ],
)
def test_a_bug_of_another_owner_is_not_pytorchs(
    where: tuple[FailureOrigin, str] | None, changes: dict[str, object], words: str
) -> None:
    subject = subject_of(where, **changes)  # type: ignore[arg-type]  # fields by name
    found = find_other_owner(subject)
    assert words in found and bool(found) is bool(words)
    assert bool(name_issue(subject, None, found).labels) is not bool(words)


def test_searches_become_broader() -> None:
    message = "Not all inputs to pattern found in match.kwargs. argname=a3"
    signature = Signature("compile-error", "RuntimeError", message=message)
    subject = subject_of(("joint", "fold"), signature)
    strict, middle, broad = similar_queries(subject, "inductor")
    assert strict.words == '"Not all inputs to pattern found" RuntimeError fold abs sum'
    assert middle.words == "inductor RuntimeError fold abs"
    assert broad.words == "inductor fold"
    assert strict.github.startswith("repo:pytorch/pytorch is:issue ")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("shape mismatch at 0x7f, expected a tensor of rank 3", "expected a tensor of rank"),
        ("cannot open /home/me/x.py line 3", "cannot open"),
        ("`'; rm -rf ~ ; $(id)", "rm rf"),
        ("", ""),
    ],
)
def test_words_of_one_run_are_left_out(message: str, words: str) -> None:
    assert stable_words(message) == words


def test_a_command_is_quoted() -> None:
    signature = Signature("runtime-error", "E`id`", message="a $(touch x) b c d")
    for query in similar_queries(subject_of(None, signature), "x"):
        assert "`" not in query.words and "$(" not in query.words
        assert query.command.startswith("gh search issues --repo pytorch/pytorch --limit 20 -- ")


def test_operators_have_the_names_of_users() -> None:
    case = make_case(lambda x: (torch.sin(x) + x.abs(),), torch.ones(2), target="ctk")
    assert set(operator_names(case.graph)) == {"sin", "abs", "add"}
