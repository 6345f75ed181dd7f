"""Code of the user's: equal where it does the same, another where anything that it uses differs."""

import functools
import importlib
import math
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.errors import Uncacheable
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.usercode.code_effects import loads_of
from ctk.compiler.usercode.identity import identity_of
from ctk.compiler.usercode.python_files import load_file

SCALE = 2


def identity(value: object) -> str:
    return identity_of(value, "the pass")


def made(scale: Any) -> Callable[[Any], Any]:
    def run(graph: Any) -> Any:
        return graph, scale

    return run


def scaled(graph: Any) -> Any:
    return graph, SCALE


def calls_another(graph: Any) -> Any:
    return scaled(graph)


def with_default(graph: Any, scale: int = 2) -> Any:
    return graph, scale


@dataclass(frozen=True, slots=True)
class MyPass(Pass):
    name = "my_pass"
    scale: int = 1

    def run(self, rewriter: Any) -> None:
        rewriter.scale(self.scale)


def test_what_a_function_holds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity(made(1)) == identity(made(1))
    assert len({identity(made(each)) for each in (1, 1.0, True, "1", (1,), [1], made)}) == 7
    assert identity(functools.partial(with_default, scale=1)) != identity(with_default)
    before = identity(scaled), identity(calls_another), identity(with_default)
    monkeypatch.setattr(with_default, "__defaults__", (3,))
    monkeypatch.setitem(scaled.__globals__, "SCALE", 3)
    after = identity(scaled), identity(calls_another), identity(with_default)
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_a_replaced_function_counts_through_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(calls_another)
    monkeypatch.setitem(calls_another.__globals__, "scaled", made(1))
    assert identity(calls_another) != before


def test_the_options_of_a_pass_count() -> None:
    assert identity(MyPass()) == identity(MyPass(scale=1))
    assert identity(MyPass()) != identity(MyPass(scale=2))
    assert identity(MyPass().run) != identity(MyPass(scale=2).run)


class Annotated:
    scale: int = 2


def test_annotations_that_were_read_do_not_count() -> None:
    """Python 3.14 puts those that it has evaluated into the class."""
    kinds = Annotated, MyPass
    before = [identity(kind) for kind in kinds]
    assert all(kind.__annotations__ for kind in kinds)
    assert before == [identity(kind) for kind in kinds]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 brought the statement `type`")
def test_names_that_a_class_evaluates_later_are_loads() -> None:
    code = compile("class Local:\n    type Scale = list[SCALE]\n", "local.py", "exec")
    assert "SCALE" in loads_of(code).names


def test_an_edited_file_is_another_code_before_and_after_it_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "edited_pass.py"
    path.write_text("def run(graph):\n    return graph + 1\n")
    first = load_file(path).run
    before = identity(first)
    path.write_text("def run(graph):\n    return graph + 2\n")
    stale = identity(first)
    fresh = identity(load_file(path, fresh=True).run)
    assert len({before, stale, fresh}) == 3
    path.write_text("def run(graph):\n    return graph + 1\n")
    assert identity(load_file(path, fresh=True).run) == before


def test_files_that_a_pass_imports_count(tmp_path: Path) -> None:
    helper = tmp_path / "scaling_helper.py"
    helper.write_text("FACTOR = 2\ndef scale(x):\n    return x * FACTOR\n")
    (tmp_path / "importing_pass.py").write_text(
        "import scaling_helper\ndef run(graph):\n    return scaling_helper.scale(graph)\n"
    )
    module = load_file(tmp_path / "importing_pass.py")
    before = identity(module.run)
    module.scaling_helper.FACTOR = 3
    changed = identity(module.run)
    module.scaling_helper.FACTOR = 2
    assert identity(module.run) == before != changed
    helper.write_text("FACTOR = 2\ndef scale(x):\n    return x + FACTOR\n")
    assert identity(module.run) != before


def test_functions_of_the_library_are_known_by_name() -> None:
    assert identity(made(len)) == identity(made(len)) != identity(made(print))


def test_recursive_code_ends() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert identity(even) != identity(odd)


@pytest.mark.parametrize("held", [threading.Lock(), torch.ones(2), object()])
def test_what_cannot_be_known_is_refused(held: object) -> None:
    with pytest.raises(Uncacheable, match=r"the pass uses a .*, which cannot be known"):
        identity(made(held))


def _operator(name: str, scale: int) -> Any:
    @torch.library.custom_op(f"ctk_identity::{name}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @operator.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0] * scale)

    return getattr(torch.ops.ctk_identity, name).default


def test_an_operator_of_the_program_counts_with_its_fake_kernel() -> None:
    once = identity(_operator("one", 1))
    assert identity(_operator("one", 1)) == once
    assert identity(_operator("one", 2)) != once


def test_an_operator_counts_with_its_type_under_autocast() -> None:
    once = identity(_operator("cast", 1))
    torch.library.register_autocast("ctk_identity::cast", "cpu", torch.bfloat16)
    assert identity(torch.ops.ctk_identity.cast.default) != once


def test_an_operator_with_a_hidden_kernel_is_refused() -> None:
    library = torch.library.Library("ctk_identity_hidden", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    try:
        with pytest.raises(Uncacheable, match="CompositeImplicitAutograd is hidden"):
            identity(torch.ops.ctk_identity_hidden.twice.default)
    finally:
        library._destroy()


def reads_the_environment(graph: Any) -> Any:
    return graph, os.environ["CTK_TEST_SCALE"]


def reads_what_was_put_into_a_library(graph: Any) -> Any:
    return graph, math.ctk_factor  # type: ignore[attr-defined]  # the test puts it there


class WithScale(type):
    scale = 2


class Scaled(metaclass=WithScale):
    pass


def reads_a_metaclass(graph: Any) -> Any:
    return graph, Scaled.scale


def test_the_environment_additions_to_libraries_and_metaclasses_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CTK_TEST_SCALE", "2")
    monkeypatch.setattr(math, "ctk_factor", 2, raising=False)
    all_of_them = reads_the_environment, reads_what_was_put_into_a_library, reads_a_metaclass
    before = [identity(each) for each in all_of_them]
    assert before == [identity(each) for each in all_of_them]
    monkeypatch.setenv("CTK_TEST_SCALE", "3")
    monkeypatch.setattr(math, "ctk_factor", 3)
    monkeypatch.setattr(WithScale, "scale", 3)
    assert all(identity(each) != old for each, old in zip(all_of_them, before, strict=True))


def reads_a_file(graph: Any) -> Any:
    with open(__file__) as file:  # noqa: PTH123 - the name is what is tested
        return graph, file.read()


def looks_up_a_module(graph: Any) -> Any:
    return graph, sys.modules["math"]


def looks_up_a_name(graph: Any) -> Any:
    return graph, globals()["SCALE"]


def looks_up_an_attribute(graph: Any, name: str = "path") -> Any:
    return graph, getattr(os, name)


def imports_by_text(graph: Any) -> Any:
    return graph, importlib.import_module("math").pi


def runs_text(graph: Any) -> Any:
    return graph, eval("SCALE")


def imports_where_it_runs(graph: Any) -> Any:
    from ctk_tests_have_no_such_module import scale  # type: ignore[import-not-found]  # as it says

    return graph, scale


def holds_a_function_that_reads(graph: Any, read: Any = open) -> Any:
    return graph, read


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (reads_a_file, "uses open"),
        (looks_up_a_module, "uses sys.modules"),
        (looks_up_a_name, "uses globals"),
        (looks_up_an_attribute, "uses getattr of os"),
        (imports_by_text, "uses import_module"),
        (runs_text, "uses eval"),
        (imports_where_it_runs, "imports ctk_tests_have_no_such_module where it runs"),
        (holds_a_function_that_reads, "uses open"),
    ],
)
def test_code_that_reads_what_nobody_can_know_is_not_kept(function: Any, said: str) -> None:
    with pytest.raises(Uncacheable, match=said):
        identity(function)


def ordinary(graph: Any) -> Any:
    graph.eval()
    for node in graph.modules():
        if getattr(node, "training", False) and math.pi > 3:
            torch.ops.aten.relu(node)
    return graph, hasattr(graph, "name")


def test_ordinary_code_is_kept() -> None:
    assert identity(ordinary) == identity(ordinary)
