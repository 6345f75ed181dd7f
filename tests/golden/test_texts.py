"""The text of each kind of answer, as people read it; one golden file per kind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.as_json import record_of
from ctk.toolkit.operations.report.as_text import summary
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.report.phrases import INTERRUPTED
from ctk.toolkit.operations.session.whole_program import search_of_whole
from ctk.toolkit.oracle.answers.journal import Header, start_journal
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.repro.run import ReproRun
from tests.helpers.case_folders import linear_case

Compare = Callable[[str, str], None]

ACCURACY = Signature("accuracy", output="out0", message="max abs 2")
TWICE = "eager, run twice, agrees with itself: neither a race nor random numbers"


def fails(signature: Signature = ACCURACY) -> Judgement:
    return Judgement(Verdict.REPRODUCES, signature)


def passed(where: str, *nodes: str, evidence: str = "max abs 2") -> Culprit:
    stage, _, name = where.partition("/")
    return Culprit(stage, name, Veto(passes=frozenset({where})), nodes=nodes, evidence=evidence)  # type: ignore[arg-type]  # a literal of the tests


def found(culprit: Culprit, signature: Signature = ACCURACY, *excluded: str) -> Search:
    told = (TWICE, *excluded) if signature.is_numeric else excluded
    return Search(fails(signature), culprit, True, "check", 3, excluded=told)


def whole(signature: Signature, layer: str, cause: str, line: str = "", call: int = 2) -> EndToEnd:
    evidence = ("Dynamo alone (backend='eager'): as eager",) * (layer != "dynamo")
    return EndToEnd(
        fails(signature), call, layer, cause, line, evidence, bool(line), "net.py", "inductor"  # type: ignore[arg-type]  # a literal of the tests
    )  # fmt: skip


PASSES = Judgement(Verdict.PASSES, detail="2 calls of the program with the results of eager")
FUSION = replace(
    passed("lowered/fusion", "add", "relu"),
    veto=Veto(rewrites=frozenset({9})),
    rewrite=9,
    index=2,
    rule="fuse buf0, buf1",
    rewrites_in_pass=3,
)
LOWERING = replace(
    passed("lowered/lower.aten.relu.default", "relu"),
    captured=("y",),
    excerpt="cpp_fused_add_relu_0\n  auto tmp2 = tmp1 + 1;\n",
)
KERNEL = Culprit(
    "lowered", "per_node:forward.tanh", Veto(kernels=frozenset({"k"})), nodes=("tanh",)
)
TOGETHER = replace(
    found(passed("joint/first", "add")), also=(passed("joint/second", "mul"),), relation="together"
)
ANSWERS: Mapping[str, Search | EndToEnd] = {
    "pass": found(
        passed("joint/cse", "add", "mul"),
        ACCURACY,
        "the 4 steps before joint/cse keep all 27 values",
    ),
    "error": found(
        passed("joint/cse", evidence="KeyError: 'x'"),
        Signature("compile-error", "KeyError", "joint/cse", message="'x'"),
    ),
    "missing_error": found(
        passed("dispatch/decompose.aten.index_select.default", "index_select"),
        Signature("missing-error", "IndexError", "index_select", message="index out of range"),
        "eager, run twice, raises the same",
    ),
    "other_error": found(KERNEL, Signature("other-error", "RuntimeError", message="bad index")),
    "stride": found(passed("lowered/padding", "mm"), Signature("stride", output="out0")),
    "alias": whole(Signature("alias", output="call1.out0"), "runtime", "aliases"),
    "requires_grad": found(passed("dispatch/functionalize"), Signature("requires-grad")),
    "state": whole(Signature("state", output="call1.state.log"), "dynamo", "side_effects"),
    "guards": whole(Signature("accuracy", output="call2.out0"), "dynamo", "guards", "net.py:7"),
    "decomposition": found(passed("dispatch/decompose.aten.gelu.default", "gelu")),
    "lowering": found(LOWERING),
    "alternatives": found(
        replace(LOWERING, alternatives=("lowered/lower.aten.add.Tensor",)),
        ACCURACY,
        "it passes without lowered/lower.aten.exp.default too, but compiled alone on eager's"
        " operands aten.exp.default is right and aten.relu.default is wrong",
    ),
    "fusion": found(FUSION),
    "kernel": found(KERNEL),
    "freezing": found(passed("frozen/fold_constants", "_folded")),
    "independent": replace(TOGETHER, relation="independent"),
    "together": TOGETHER,
    "rewrites": replace(
        TOGETHER, also=(passed("joint/first", "mul"), passed("joint/second", "exp"))
    ),
    "many_nodes": found(passed("joint/cse", *(f"add_{number}" for number in range(98)))),
    "later_call": whole(Signature("nan", output="call5.out0"), "runtime", "later call", call=5),
    "hidden": Search(PASSES, hidden=(passed("forward/narrow", "exp"),)),
    "passes": Search(PASSES),
    "not_confirmed": Search(
        fails(), passed("joint/cse"), False, "check", 4, reason="no pass alone makes it pass"
    ),
    "no_culprit": Search(fails(), reason="target mine:compile announces no passes"),
    "flaky": Search(
        Judgement(Verdict.FLAKY, ACCURACY, "two eager runs differ at out0"), reason="not asked"
    ),
    "timeout": Search(Judgement(Verdict.TIMEOUT, detail="no answer within 5 s")),
    "invalid": Search(Judgement(Verdict.INVALID, detail="input 2 is missing")),
}


def text_of(answer: Search | EndToEnd, folder: Path) -> str:
    """Return what `ctk bisect-pass net.py` writes below this folder."""
    target = "inductor" if isinstance(answer, EndToEnd) else "ctk"
    case = replace(linear_case(), target=target)
    told = None if isinstance(answer, Search) else answer
    search = answer if isinstance(answer, Search) else search_of_whole(Search(PASSES), answer)
    folder.mkdir()
    with start_journal(folder, Header("bisect-pass", "net.py", {"target": target}, "full", (), {})):
        pass
    record = record_of(Diagnosis(case, search, 1.0, folder=folder, end_to_end=told))
    return "".join(f"{line}\n" for line in summary(record, folder))


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_text_of_each_kind_of_answer(kind: str, tmp_path: Path, golden: Compare) -> None:
    golden(f"texts/{kind}.txt", text_of(ANSWERS[kind], tmp_path / "out"))


@pytest.mark.parametrize("kind", ["passes", "hidden", "flaky", "timeout", "invalid"])
def test_what_does_not_fail_has_no_culprit(kind: str, tmp_path: Path) -> None:
    assert "culprit" not in text_of(ANSWERS[kind], tmp_path / "out")


def test_after_ctrl_c_the_count_and_the_folder_stand_for_the_nodes(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for _ in range(98):
        value = graph.call_function(torch.neg, (value,))
    graph.output(value)
    case = replace(linear_case(), graph=torch.fx.GraphModule({}, graph))
    reduction = Reduction(case, False, "interrupted", 9, 0, 1.0, {}, 98, 98)
    script = tmp_path / "minimal" / "repro.py"
    found_ = Diagnosis(
        case, TOGETHER, 1.0, folder=tmp_path, best=case, repro=script, reduction=reduction,
        problems=(INTERRUPTED,),
    )  # fmt: skip
    lines = summary(record_of(found_), tmp_path)
    assert f"minimal    98 -> 98 call nodes (interrupted): {script.parent}" in lines
    assert f"next       ctk repro {script.parent}  # repro.py was not run: interrupted" in lines
    assert max(map(len, lines)) < 200


@pytest.mark.parametrize("says", ["reproduced", "not reproduced"])
def test_a_repro_is_the_next_step_only_if_it_shows_the_failure(says: str, tmp_path: Path) -> None:
    case = linear_case()
    script = tmp_path / "minimal" / "repro.py"
    run = ReproRun(1, "", says)  # type: ignore[arg-type]  # a literal of the tests
    found_ = Diagnosis(case, TOGETHER, 1.0, folder=tmp_path, best=case, repro=script, repro_run=run)
    lines = summary(record_of(found_), tmp_path)
    wanted = f"python {script}" if says == "reproduced" else f"ctk repro {script.parent}"
    assert any(line.startswith(f"next       {wanted}  #") for line in lines)
