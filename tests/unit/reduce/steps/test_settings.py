"""forward_only, drop_modes, drop_options, leave_out_passes: what stands around the graph."""

import dataclasses

import pytest

from ctk.compiler.options.config import leaves_out
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.settings_edits import DefaultModes, DropOptions, LeaveOutPasses
from ctk.toolkit.reduce.steps import drop_modes, drop_options, forward_only, leave_out_passes
from ctk.toolkit.targets import target_of
from tests.helpers.reduce_graphs import has_ops
from tests.helpers.reduce_steps import X, edits, proposals, traced


def case(**changes: object) -> Case:
    return dataclasses.replace(traced(lambda x: x.sin().relu(), X), **changes)


def running(found: Case) -> tuple[str, ...]:
    return tuple(target_of(found.target).passes(found.config))


def test_no_backward_pass_and_no_ambient_mode_where_none_is_needed():
    modes = Modes(
        grad=False, seed=3, default_dtype="float64", settings={"float32_matmul_precision": "high"}
    )
    given = case(modes=modes)
    assert edits(proposals(drop_modes.STEP, given)[0]) == [
        DefaultModes(("seed",)), DefaultModes(("default_dtype",)),
        DefaultModes(("settings",)), DefaultModes(("grad",)),
    ]  # fmt: skip
    leaf = dataclasses.replace(given, inputs=(X.clone().requires_grad_(),))
    with_backward = dataclasses.replace(leaf, modes=Modes(backward=True))
    assert edits(proposals(forward_only.STEP, with_backward)[0]) == [DefaultModes(("backward",))]


def test_options_of_the_target_go_back_to_their_defaults_but_for_what_is_left_out():
    given = case(target="ctk", config={"verify": False, "disable": ["joint/partition"]})
    assert edits(proposals(drop_options.STEP, given)[0]) == [DropOptions(("verify",))]


def test_all_passes_but_one_are_said_in_a_short_way():
    given = case(target="ctk")
    every = running(given)
    assert len(every) > 20
    kept = every[7]
    others = tuple(name for name in every if name != kept)
    found = LeaveOutPasses(others).apply(given, None)
    assert found.config == {"disable": ["*", f"-{kept}"]}
    assert running(found) == (kept,)
    assert running(LeaveOutPasses((kept,)).apply(found, None)) == ()


def test_one_more_pass_is_added_to_those_that_are_left_out_already():
    given = case(target="ctk", config={"disable": ["fold_constants"]})
    one = running(given)[0]
    found = LeaveOutPasses((one,)).apply(given, None)
    assert found.config["disable"] == ["fold_constants", one]
    assert one not in running(found)
    assert LeaveOutPasses((one,)).apply(found, None) is None


def test_the_passes_are_reduced_together_with_the_graph():
    given = case(target="ctk", config={"verify": False})
    guilty = running(given)[11]

    def judge(candidate: Case) -> Judgement:
        fails = has_ops("relu")(candidate) and guilty in running(candidate)
        return Judgement(Verdict.REPRODUCES if fails else Verdict.PASSES)

    found = minimize(Problem(given, judge))
    assert found.finished
    assert running(found.best) == (guilty,)
    assert found.best.config == {"disable": ["*", f"-{guilty}"]}


def test_a_suspect_leaves_all_others_out_with_one_question():
    given = case(target="ctk")
    step = leave_out_passes.only_these({running(given)[3]})
    (guess,) = edits(step.propose(given, None)[0])
    assert running(guess.apply(given, None)) == (running(given)[3],)
    assert leave_out_passes.only_these({"joint/nothing"}).propose(given, None) == []


@pytest.mark.parametrize(
    ("disable", "is_left_out"),
    [
        (["*"], True), (["joint/fold"], True), (["-fold"], False), (["*", "-fold"], False),
        (["*", "-joint/fold"], False), (["-fold", "*"], True),
        (["fold", "-fold"], False), ([], False),
    ],
)  # fmt: skip
def test_the_last_word_counts(disable: list[str], is_left_out: bool):
    assert leaves_out(disable, {"fold", "joint/fold", "joint/fold#0"}) is is_left_out


def test_a_decomposition_is_left_out_by_name_alone():
    names = {"decompose.aten.gelu", "dispatch/decompose.aten.gelu"}
    assert not leaves_out(["*"], names, is_pass=False)
    assert leaves_out(["*", "decompose.aten.gelu"], names, is_pass=False)


def test_passes_that_went_with_an_option_are_named_no_more():
    custom = {"joint": ["examples/broken_pass.py:fold_scale_into_add"]}
    mine = "-joint/fold_scale_into_add"
    given = case(target="ctk", config={"custom_passes": custom, "disable": ["*", mine]})
    assert running(given) == (mine[1:],)
    found = DropOptions(("custom_passes",)).apply(given, None)
    assert found.config == {"disable": ["*"]}


def test_passes_are_left_out_beside_the_options_of_a_code_generator():
    config = {"codegen": "triton", "passes": {"triton": {"interpret": True}}}
    given = case(target="ctk", config=config)
    (found,) = proposals(leave_out_passes.STEP, given)
    assert len(found.atoms) > 20


def test_a_pass_of_the_user_is_not_dropped_without_its_options():
    entries = {"joint": ["my_pass.py:PASS"]}
    config = {"custom_passes": entries, "passes": {"my_pass": {"by": 2.0}}}
    given = case(target="ctk", config=config)
    assert DropOptions(("custom_passes",)).apply(given, None) is None
    both = DropOptions(("custom_passes", "passes")).apply(given, None)
    assert both is not None and both.config == {}
