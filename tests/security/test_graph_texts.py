"""What a stranger's graph says or calls through another operator does not reach a compiler."""

from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import TrustError
from ctk.toolkit.case.case import Case
from ctk.toolkit.operations.check import check
from tests.helpers.hostile_graphs import Json, calling, graph, load, node, ref

HIGHER = "torch.ops.higher_order."
OPERATORS = ("resize_.default", "_print.default", "set_.source_Tensor_storage_offset")


def through(outer: str, inner: str) -> Json:
    operator = {"target": inner}
    if outer == "with_effects":
        token = node("call_function", "token", "torch.ops.prims._make_token.default")
        return graph(token, node("call_function", "q", HIGHER + outer, ref("token"), operator))
    return calling(HIGHER + outer, operator, ref("x"), [2, 4])


@pytest.mark.parametrize("outer", ["with_effects", "run_and_save_rng_state", "auto_functionalized"])
@pytest.mark.parametrize(
    "inner",
    [
        "torch.ops.inductor._reinterpret_tensor.default",
        *(f"torch.ops.aten.{name}" for name in OPERATORS),
    ],
)
def test_an_operator_that_needs_trust_needs_it_behind_another_one_too(
    outer: str, inner: str
) -> None:
    with pytest.raises(TrustError, match=r"--trust"):
        load(through(outer, inner))
    load(through(outer, inner), trust=True)


def injection(mark: Path) -> Json:
    """An assertion with a message that ends Inductor's C++ string and starts a shell."""
    text = f'a"), 0)); (void)!system("touch {mark}"); (1 ? 0 : (throw std::runtime_error("'
    return graph(
        node("call_function", "same", "torch.eq", ref("x"), ref("x")),
        node("call_method", "all_1", "all", ref("same")),
        node("call_function", "q", "torch.ops.aten._assert_async.msg", ref("all_1"), text),
        node("call_function", "r", "torch.sin", ref("x")),
    )


def test_the_message_of_an_assertion_reaches_no_shell_through_inductor(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(TrustError, match="could be read as a program"):
        check(Case(load(injection(mark)), (torch.ones(3),), target="inductor"))
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    ['"', "\\", "a\nb", "\x1b[2J", "'''", "''", "??/", "`", "\u2028"],
)
def test_a_message_cannot_end_the_string_it_is_pasted_into(text: str) -> None:
    data = calling("torch._assert_async", ref("x"), f"say {text} so")
    with pytest.raises(TrustError, match="could be read as a program"):
        load(data)
    load(data, trust=True)


@pytest.mark.parametrize(
    "data",
    [
        calling("torch.einsum", "i'j->ij", ref("x")),
        calling("operator.mod", "%c", 34),
        graph(node("call_method", "q", "__mod__", "%.*f", {"tuple": [2000000000, 1.0]})),
        graph(node("get_attr", "q", "word"), values={"word": ["%c"]}),
        calling("operator.getitem", {"dict": [['"', 1]]}, '"'),
        calling("torch.norm", ref("x"), kwargs={"p": "system('id')"}),
        calling("torch.sum", ref("x"), {"slice": ["{0}", None, None]}),
    ],
)
def test_no_text_from_which_a_program_could_be_made_stands_anywhere(data: Json) -> None:
    with pytest.raises(TrustError, match="could be read as a program"):
        load(data)


def test_what_programs_say_is_taken() -> None:
    load(calling("torch.einsum", "b i j, b j k -> b i k", ref("x"), ref("x")))
    load(calling("torch.div", ref("x"), 2, kwargs={"rounding_mode": "trunc"}))
    load(calling("torch._assert", ref("x"), "it's 100 % wrong: u0 >= 0 on node 'ge' (a $ sign)"))
