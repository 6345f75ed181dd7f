"""Options of passes: by name, by stage, by dotted key; checked, with what is allowed."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest
import torch

from ctk import Config, patch
from ctk.compiler.errors import ConfigError
from ctk.compiler.options.config import resolve
from ctk.compiler.passes import PASSES
from ctk.compiler.passes.joint.fold_constants import FoldConstants
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.options import set_options
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.toolkit.targets.ctk import TARGET
from tests.helpers.passes import aten_graph, rules_of, run_pass


@dataclass(frozen=True)
class Pad(Pass):
    name = "pad_mm"
    min_gain: float = 0.5
    sizes: tuple[int, ...] = (8, 16)
    pair: tuple[int, str] = (1, "a")
    anything: tuple = ()
    words: tuple[Literal["a", "b"], ...] = ()
    mode: Literal["fast", "small", 3] = "fast"
    limit: int | None = None
    label: str = ""
    strict: bool = True
    either: float | int = 1

    def __post_init__(self) -> None:
        if self.min_gain > 1:
            raise ValueError("min_gain is a part of the time, up to 1")

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if node.target is torch.ops.aten.mm.default:
                rewriter.rewrite(f"mm at {self.min_gain}", [node], lambda graph: None)


def double(gm):
    """Change nothing: a user's pass that is a function."""


def selected(changes, stage="joint", name="fold_constants"):
    passes = select_passes(PASSES, Config().patch(changes))[stage]
    return next(step for step in passes if step.name == name)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"min_gain": 0}, 0.0),
        ({"sizes": [1, 2, 3]}, (1, 2, 3)),
        ({"sizes": ()}, ()),
        ({"pair": [2, "b"]}, (2, "b")),
        ({"anything": [1, "x"]}, (1, "x")),
        ({"words": "a"}, ("a",)),
        ({"words": "a, b"}, ("a", "b")),
        ({"words": ""}, ()),
        ({"mode": "small"}, "small"),
        ({"mode": 3}, 3),
        ({"limit": 7}, 7),
        ({"limit": None}, None),
        ({"label": "x"}, "x"),
        ({"strict": False}, False),
        ({"either": 3}, 3),
    ],
)
def test_a_value_is_taken_as_its_option_wants_it(options, expected):
    ((name, _),) = options.items()
    value = getattr(set_options(Pad(), "pad_mm", options), name)
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"min_gain": "big"}, "pad_mm.min_gain takes float, not 'big'"),
        ({"min_gain": True}, "takes float"),
        ({"sizes": 8}, "pad_mm.sizes takes a list of int, not 8"),
        ({"sizes": ["8"]}, "takes a list of int"),
        ({"pair": [1]}, "takes a list of int, str"),
        ({"anything": 1}, "takes a list"),
        ({"words": "a,c"}, "pad_mm.words takes a list of 'a' or 'b', not 'a,c'"),
        ({"pair": "2,b"}, "takes a list of int, str"),
        ({"mode": "fats"}, "pad_mm.mode takes 'fast' or 'small' or 3, not 'fats'"),
        ({"limit": 1.5}, "takes int or None"),
        ({"label": 3}, "takes str"),
        ({"strict": 1}, "takes true or false"),
        ({"min_gian": 0.1}, "no option 'min_gian'; did you mean 'min_gain'?; its options are min_"),
        ({"min_gian": 0.1}, "mode: 'fast' or 'small' or 3 = 'fast', limit: int or None = None"),
        ({"min_gain": 2.0}, "pad_mm.min_gain=2.0 is refused: min_gain is a part of the time"),
    ],
)
def test_a_wrong_option_says_what_is_allowed(options, expected):
    with pytest.raises(ConfigError) as caught:
        set_options(Pad(), "pad_mm", options)
    assert expected in str(caught.value)


def test_a_type_that_cannot_be_read_refuses_values_and_harms_nobody():
    """As with `from __future__ import annotations` and an import under TYPE_CHECKING."""

    @dataclass(frozen=True)
    class Later(Pass):
        name = "later"
        limit: "OnlyForCheckers | None" = None  # noqa: F821  # the name that is not there

        def run(self, rewriter: Rewriter) -> None: ...

    assert selected({"custom_passes": {"joint": [Later]}}, "joint", "later") == Later()
    with pytest.raises(ConfigError, match=r"later\.limit takes OnlyForCheckers .*, not 3"):
        set_options(Later(), "later", {"limit": 3})


@pytest.mark.parametrize("step", [FoldConstants, FoldConstants()])
def test_the_users_own_pass_has_options_too(step):
    changes = {"custom_passes": {"forward": [step]}, "forward/fold_constants.max_nbytes": 3}
    assert selected(changes, "forward").max_nbytes == 3


def test_options_reach_the_pass_by_name_and_by_stage():
    changes = {"fold_constants.max_nbytes": 7, "frozen/fold_constants.max_nbytes": 9}
    assert selected(changes).max_nbytes == 7
    assert selected(changes, "frozen").max_nbytes == 9
    assert selected({}).max_nbytes == 1 << 20


def test_a_pass_does_as_its_options_say():
    gm = aten_graph(lambda x: x + torch.full((4, 1), 2.0) * torch.arange(4.0), torch.zeros(4))
    big, small = selected({}), selected({"fold_constants.max_nbytes": 63})
    assert rules_of(run_pass(gm, small)) == []
    assert len(rules_of(run_pass(gm, big))) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"fold_constant.max_nbytes": 1}, "unknown pass 'fold_constant'; did you mean 'fold_cons"),
        ({"passes": {"x": {}}}, "unknown pass 'x'; passes with options: batch_linears"),
        ({"backward/fold_constants.max_nbytes": 1}, "unknown pass 'backward/fold_constants'"),
        ({"remove_noops.speed": 1}, "pass remove_noops has no options, so none called 'speed'"),
        ({"joint/fold_constants.max_nbytes": "1M"}, "max_nbytes takes int, not '1M'"),
        ({"fold_constants.max_nbytes": -1}, "max_nbytes=-1 is refused: max_nbytes is a number"),
        (
            {"custom_passes": {"joint": [double]}, "double.times": 2},
            "pass double has no options, so none called 'times'\n"
            "  the options of a pass are the fields of a class",
        ),
    ],
)
def test_the_target_refuses_wrong_options_before_it_compiles(changes, expected):
    with pytest.raises(ConfigError) as caught:
        TARGET.check_config(changes)
    assert expected in str(caught.value)


@pytest.mark.parametrize("passes", [3, {"fold_constants": 3}, {3: {}}])
def test_options_by_pass_are_a_mapping(passes):
    with pytest.raises(ConfigError, match="takes a mapping such as"):
        Config(passes=passes)


def test_dotted_keys_set_one_option_and_leave_the_others():
    config = Config().patch({"a.x": 1, "a.y": 2}).patch({"a.x": 3})
    assert config.passes == {"a": {"x": 3, "y": 2}}
    assert config.patch(passes={}).passes == {}
    assert config.patch({"passes": {"b": {"z": 1}}, "a.x": 4}).passes == {
        "b": {"z": 1},
        "a": {"x": 4},
    }


def test_later_blocks_and_calls_win_whichever_way_they_are_written():
    with patch({"a.x": 1, "a.y": 1}), patch(passes={"a": {"x": 2, "y": 2}}):
        assert resolve({"a.y": 3}).passes == {"a": {"x": 2, "y": 3}}


def test_options_survive_json():
    config = Config().patch({"pad_mm.sizes": (1, (2, 3)), "pad_mm.mode": "small"})
    assert set(config.differences()) == {"passes"}
    assert Config().patch(json.loads(json.dumps(config.differences()))) == config
