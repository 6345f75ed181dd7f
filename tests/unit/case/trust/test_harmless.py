"""The lists of harmless targets and options, held to what torch and ctk have."""

import re
import typing
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from torch._inductor import list_mode_options

from ctk.compiler.codegen import CODEGENS
from ctk.compiler.options.config import Config
from ctk.compiler.torch_compat.dynamo.dynamo_api import inductor_mode_options
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.versions import release_of
from ctk.toolkit.case.formats import plain_text
from ctk.toolkit.case.trust import ctk_options, inductor_options
from ctk.toolkit.case.trust.demands import (
    HARMLESS,
    TORCH_NAMESPACES,
    CodeNames,
    UserOverrides,
    demands_of,
)
from ctk.toolkit.targets import TARGETS, target_names
from tests.helpers.refused_options import REFUSED, is_refused
from tests.helpers.torch_news import is_expected

NEEDS_TRUST = {
    "dynamo_accuracy_minifier_backend",  # writes files
    "dynamo_minifier_backend",  # writes files
    "openxla",  # imports torch_xla
    "openxla_eval",  # imports torch_xla
    "tvm",  # imports tvm
}


NAMESPACES_THAT_NEED_TRUST = frozenset(
    plain_text.words("""
    _inductor_debug _native_aot _test _torch_testing ao bucketing c10d coor cuda debug_mode_ops
    device_mesh dist_rpc mempool metal_prepack onnx onnx_symbolic prepacked profiler rpc
    semi_structured symm_mem torch_attn triton vulkan_prepack xnnpack
    """)
)
"""Collectives, profilers, memory pools, tests, other devices, and operators no case has needed."""


def allowed() -> dict[str, str]:
    """Every option of Inductor that is allowed, and the table that it is in."""
    tables: dict[str, Any] = {
        "SWITCHES": inductor_options.SWITCHES,
        "NUMBERS": inductor_options.NUMBERS,
        "CHOICES": inductor_options.CHOICES,
        "WORDS": inductor_options.WORDS,
        "FUSIONS": inductor_options.FUSIONS,
        "ONLY": inductor_options.ONLY,
    }
    return {name: table for table, names in tables.items() for name in names}


def parts(declared: Any) -> set[Any]:
    """The types of a union, without None."""
    is_union = get_origin(declared) in (typing.Union, UnionType)
    return set(get_args(declared) if is_union else [declared]) - {NoneType}


@pytest.mark.parametrize("name", sorted(allowed()))
def test_an_allowed_option_exists_and_has_a_type_that_can_do_no_harm(name: str) -> None:
    known = inductor.known_options()
    if name not in known:
        assert not is_expected(name), f"torch has no {name}"
        return
    kinds, table = parts(known[name][1]), allowed()[name]
    if table == "CHOICES":
        (choice,) = kinds
        assert get_origin(choice) is Literal
        new = set(inductor_options.CHOICES[name]) - set(get_args(choice))
        assert not new or (release_of(torch.__version__) < (2, 15) and name == "numerics")
    elif table == "WORDS":
        assert kinds == {str}
        words, reason = inductor_options.WORDS[name]
        assert reason
        assert all(re.fullmatch(r"\w+", word) for word in words)
    elif table == "FUSIONS":
        assert known[name][1] == dict[str, dict[str, Any]]
    else:
        assert kinds <= {bool, int, float} or known[name][1] is NoneType


def test_each_option_was_reviewed() -> None:
    listed = {*allowed(), "max_autotune_gemm_backends"}
    names = set(inductor.known_options())
    assert not {name for name in names if name not in listed and not is_refused(name)}
    assert not {name for name in listed if is_refused(name)}
    refused = {name for names in REFUSED.values() for name in names}
    assert {name for name in refused if is_expected(name)} <= names


def test_a_refused_option_is_refused() -> None:
    for name, (value, _) in inductor.known_options().items():
        if is_refused(name):
            assert not inductor_options.is_harmless(name, value), name


def test_whatever_takes_text_a_function_or_a_list_is_refused_unless_it_is_listed() -> None:
    listed = {*inductor_options.WORDS, *inductor_options.CHOICES, *inductor_options.FUSIONS}
    listed.add("max_autotune_gemm_backends")
    for name, (value, declared) in inductor.known_options().items():
        kinds = parts(declared)
        if name in listed or (kinds and kinds <= {bool, int, float}):
            continue
        tried = [value, "text", "module:function", ["text"], {"text": "text"}, "/tmp/x"]
        for each in tried:
            if each is not None and not isinstance(each, bool | int | float):
                assert not inductor_options.is_harmless(name, each), name


def test_no_allowed_name_sounds_like_a_place_a_process_or_a_log() -> None:
    words = "dir path cxx log cache trace dump profile remote worker subproc regex upload home file"
    loose = [name for name, table in allowed().items() if table != "ONLY"]
    heard = {name: set(re.split(r"[._]", name)) & set(words.split()) for name in loose}
    assert not any(heard.values()), heard


@pytest.mark.parametrize("mode", list_mode_options())
def test_a_mode_of_torch_compile_needs_no_trust(mode: str) -> None:
    assert demands_of(CodeNames("inductor", inductor_mode_options(mode))) == ()


def test_each_target_is_decided() -> None:
    assert {target.name for target in TARGETS} <= set(HARMLESS)
    assert set(target_names()) - NEEDS_TRUST == set(HARMLESS) & set(target_names())
    assert not NEEDS_TRUST & set(HARMLESS)


def test_the_generators_of_ctk_are_those_of_its_table() -> None:
    assert set(ctk_options.GENERATORS) == {codegen.name for codegen in CODEGENS}


def test_what_a_plain_config_of_ctk_holds_is_harmless() -> None:
    config = Config(
        codegen="eager",
        fallback=("eager",),
        passes={"fold_constants": {"max_nbytes": 1024}, "joint/pad": {"by": 0.5, "on": True}},
        decompositions=("core_aten", "-aten.gelu.default"),
        disable=("joint/fold_constants#2",),
        fuel=3,
        on_failure="warn",
        verify=False,
        freezing=True,
    )
    assert demands_of(CodeNames("ctk", config.differences())) == ()
    assert demands_of(CodeNames("ctk", {"fold_constants.max_nbytes": 3, "fuel": None})) == ()
    assert demands_of(CodeNames("ctk", {"custom_passes": {"joint": []}})) == ()


def test_the_operators_of_torch_are_harmless_by_name() -> None:
    names = ["torch.ops.aten.sin.default", "torch.ops.higher_order.cond", "torch.relu", "math.pi"]
    assert demands_of(CodeNames("ctk", calls=names)) == ()
    ours = operators.CORE_NAMESPACES | {"higher_order"}
    assert ours | operators.TORCH_NAMESPACES >= TORCH_NAMESPACES
    assert operators.TORCH_NAMESPACES - TORCH_NAMESPACES == NAMESPACES_THAT_NEED_TRUST


class TestWhatTheUserSays:
    WORDS = CodeNames("my.py:f", {"path": "/x", "more": 1}, ("mod",), ("mod:f", "torch.ops.mod.g"))

    def demanded(self, given: UserOverrides = UserOverrides(), **more: Any) -> list[str]:  # noqa: B008  frozen
        return [f"{each.kind} {each.name}" for each in demands_of(self.WORDS, given, **more)]

    def test_nothing(self) -> None:
        assert self.demanded() == [
            "target 'my.py:f'",
            "option 'path' to '/x'",
            "option 'more' to 1",
            "import 'mod'",
            "call 'mod:f'",
            "call 'torch.ops.mod.g'",
        ]

    def test_another_target_drops_the_options_too(self) -> None:
        found = self.demanded(UserOverrides("eager"), allow_imports=("mod",))
        assert found == []

    def test_the_same_target_keeps_the_options(self) -> None:
        found = self.demanded(UserOverrides("my.py:f"), allow_imports=("mod",))
        assert found == ["option 'path' to '/x'", "option 'more' to 1"]

    def test_the_same_target_by_the_name_of_its_copy_keeps_them_too(self) -> None:
        given, copy = UserOverrides("/case/sources/my.py:f"), ("/case/sources/my.py:f",)
        assert len(self.demanded(given, allow_imports=("mod",), aliases=copy)) == 2

    def test_an_option_in_place_of_the_cases(self) -> None:
        found = self.demanded(UserOverrides("my.py:f", {"path": "/y"}), allow_imports=("mod",))
        assert found == ["option 'more' to 1"]

    def test_a_module_does_not_cover_another(self) -> None:
        found = self.demanded(UserOverrides("eager"), allow_imports=("other",))
        assert found == ["import 'mod'", "call 'mod:f'"]


@pytest.mark.parametrize("value", ["*", ["*"], ["*", "-joint/fold"], ["joint/fold", "-cse"]])
def test_leaving_passes_out_needs_no_trust(value: object) -> None:
    assert not demands_of(CodeNames("ctk", {"disable": value}))


@pytest.mark.parametrize("value", ["**", ["*", "my.py:f x"], ["a\nb"], {"*": 1}])
def test_other_words_about_passes_do(value: object) -> None:
    assert demands_of(CodeNames("ctk", {"disable": value}))
