"""TorchScript: the private names of `torch.jit`, and its passes over frozen graphs, one by one.

In torch: torch/csrc/jit/passes/frozen_*.cpp, `OptimizeFrozenGraph`, which `torch.jit.freeze` runs.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import logging
import platform
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

log = logging.getLogger("ctk.codegen")

_DEPRECATED = r"`torch\.jit\.\w+` is (deprecated|not supported)"
_NOT_SCRIPTED = r"The TorchScript type system doesn't support instance-level annotations"

JitGraph = Any
"""A `torch._C.Graph`: operators of torch in static single assignment."""


def operators(graph: Any) -> list[str]:
    """Return the operator of each node of a TorchScript graph, in order: `aten::add.Scalar`.

    Nodes without a schema give their kind (`prim::TupleConstruct`). Nested blocks are left out.
    """
    schemas = ((node.kind(), str(node.schema())) for node in graph.nodes())
    return [kind if text == "(no schema)" else text.split("(", 1)[0] for kind, text in schemas]


def remove_mutation(graph: Any) -> None:
    """Make in-place ops functional if TorchScript can prove that this is unobservable."""
    torch._C._jit_pass_remove_mutation(graph)


def written_attributes(graph: Any) -> list[str]:
    """Return the module attributes that a TorchScript graph may write to."""
    aliases = graph.alias_db()
    reads = [node for node in graph.nodes() if node.kind() == "prim::GetAttr"]
    return [str(node.s("name")) for node in reads if aliases.has_writers(node.output())]


def outputs_of_constants(graph: Any) -> tuple[int, ...]:
    """Return which elements of a graph's returned tuple may share memory with a constant of it."""
    (returned,) = graph.return_node().inputs()
    if returned.node().kind() != "prim::TupleConstruct":  # the whole tuple was folded
        return tuple(range(len(returned.type().elements())))
    aliases = graph.alias_db()
    constants = [node.output() for node in graph.nodes() if node.kind() == "prim::Constant"]
    tensors = [value for value in constants if value.type().kind() == "TensorType"]
    values = list(returned.node().inputs())
    shares = (
        any(aliases.may_contain_alias(value, tensor) for tensor in tensors) for value in values
    )
    return tuple(index for index, shared in enumerate(shares) if shared)


@contextlib.contextmanager
def autocast_off() -> Generator[None]:
    """Keep TorchScript from inserting casts: autocast was traced already. A flag of the process."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        yield
    finally:
        torch._C._jit_set_autocast_mode(before)


@contextlib.contextmanager
def notices_logged() -> Generator[None]:
    """Log torch's notice on torch.jit once, in place of a warning at each call inside.

    The caller is a user of `codegen=torchscript`, not of torch.jit, and an error made of the
    warning would end the compile. torch up to 2.13 has a `DeprecationWarning`, for developers; from
    2.14 it is a `FutureWarning`, for users: the level of the log is INFO or WARNING accordingly. On
    Python 3.14 and later every release calls torch.jit unsupported instead of deprecated.
    The notice that `GraphModule.__init__` is not scripted is dropped.
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", _DEPRECATED)
            warnings.filterwarnings("ignore", _NOT_SCRIPTED, UserWarning)
            yield
    finally:
        for each in caught:
            text = str(each.message)
            if re.match(_DEPRECATED, text):
                is_for_users = issubclass(each.category, FutureWarning)
                _log_notice(is_for_users=is_for_users, is_supported="not supported" not in text)
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


@cache
def _log_notice(*, is_for_users: bool, is_supported: bool) -> None:
    python = f"does not support torch.jit on Python {platform.python_version()}"
    log.log(
        logging.WARNING if is_for_users else logging.INFO,
        "torch %s %s, which the target torchscript and codegen=torchscript use; %s; "
        "next: codegen=c or codegen=triton do not need it",
        torch.__version__,
        "deprecates torch.jit" if is_supported else python,
        "they work as before" if is_supported else "they pass the tests of ctk, but may break",
    )


@dataclass(frozen=True, slots=True)
class JitPass:
    """A pass over a frozen graph.

    Attributes:
        name: As in torch's source: `fold_frozen_conv_bn`.
        for_inference: Whether only `optimize_for_inference` runs it.
    """

    name: str
    run: Callable[[JitGraph], object]
    for_inference: bool = False


_ROUNDS = 3
"""How often the folding passes follow each other: `conv -> mul -> add -> bn` takes that many."""


def jit_passes() -> Iterator[JitPass]:
    """Yield the passes in the order in which torch runs them."""
    yield _pass("concat_frozen_linear")
    for _ in range(_ROUNDS):
        for folded in ("conv_bn", "conv_add_or_sub", "conv_mul_or_div", "linear_bn"):
            yield _pass(f"fold_frozen_{folded}")
    for name in ("fuse_frozen_conv_add_relu", "convert_frozen_ops_to_mkldnn"):
        yield _pass(name, for_inference=True)
    yield _pass("transpose_frozen_linear", for_inference=True)


def _pass(name: str, *, for_inference: bool = False) -> JitPass:
    return JitPass(name, getattr(torch._C, f"_jit_pass_{name}"), for_inference)


def freeze_graph(module: torch.nn.Module, inputs: Sequence[object]) -> JitGraph:
    """Trace a module in evaluation mode to a graph of the inputs alone, with its tensors constant.

    Raises:
        ValueError: The module writes to its own tensors.
        RuntimeError: The error of torch.jit.
    """
    with warnings.catch_warnings():  # Dynamo has resolved value-dependent branches
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(module, tuple(inputs), check_trace=False)
    graph = torch.jit._recursive.wrap_cpp_module(torch._C._freeze_module(traced._c, [])).graph
    owner = next(iter(graph.inputs()))
    if owner.uses():
        raise ValueError("the graph writes to a tensor of its module")
    graph = graph.copy()
    graph.eraseInput(0)
    return graph


def function_of(graph: JitGraph) -> Callable[..., Any]:
    """Return a callable of a graph; torch.jit optimises a copy of it."""
    return torch._C._create_function_from_graph("forward", graph.copy())


def text_of(graph: JitGraph) -> str:
    """Return a graph as text that is equal for equal graphs, independent of names of values."""
    return str(torch._C._jit_pass_canonicalize(graph.copy(), False))


def changed_kinds(before: JitGraph, after: JitGraph) -> tuple[str, ...]:
    """Return the operators that a pass took away or added: `-aten::conv2d`, `+aten::add_`."""
    counts: dict[str, int] = {}
    for graph, step in ((before, -1), (after, 1)):
        for node in graph.nodes():
            if node.kind() != "prim::Constant":
                counts[node.kind()] = counts.get(node.kind(), 0) + step
    return tuple(f"{'+' if n > 0 else '-'}{kind}" for kind, n in counts.items() if n)
