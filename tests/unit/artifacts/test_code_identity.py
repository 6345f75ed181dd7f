"""Code of the user's: equal where it does the same, another where anything that it uses differs."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.artifacts.code_identity import identity_of
from ctk.compiler.errors import Uncacheable
from ctk.compiler.python_files import load_file
from ctk.compiler.rewriting.base import Pass

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


def test_recursive_code_ends() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    assert identity(even) != identity(odd)


@pytest.mark.parametrize("held", [threading.Lock(), torch.ones(2), object(), open])
def test_what_cannot_be_known_is_refused(held: object) -> None:
    if held is open:
        assert identity(made(held)) != identity(made(print))
        return
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


def test_an_operator_with_a_hidden_kernel_is_refused() -> None:
    library = torch.library.Library("ctk_identity_hidden", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    try:
        with pytest.raises(Uncacheable, match="CompositeImplicitAutograd is hidden"):
            identity(torch.ops.ctk_identity_hidden.twice.default)
    finally:
        library._destroy()
