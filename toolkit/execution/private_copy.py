"""Make a program private to one run: its own graph, inputs, held state and modules.

A compiler rewrites its graph, and a program may write into its inputs and into the state of its
graph: parameters, buffers, constants, also in lists, and generators. An optimizer step holds its
parameters and their state, `p = self.param; p.add_(grad, alpha=-0.1)`, and a copy of it writes into
parameters of its own.
"""

import contextlib
import copy
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import Argument, Target, map_aggregate
from torch.nn import Module

from ctk.compiler.errors import PrecisionRefused
from ctk.compiler.fx.clone import clone_inputs, state_in
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.process.process_state import process_state_kept
from ctk.repro_templates.numbers.float64 import METHODS, reads_bits, wide_argument, wider
from ctk.toolkit.case.graphs.triton_kernels import check_launch, is_kernel_call
from ctk.toolkit.execution.limited_rounds import limit_rounds


def private_copy(
    gm: GraphModule,
    inputs: Sequence[object],
    *,
    upcast: bool = False,
    lazy: bool = True,
) -> tuple[GraphModule, tuple[object, ...]]:
    """Return a copy of a program that a run may change.

    Args:
        gm: The graph; neither it nor its tensors change.
        upcast: Make it the float64 reference (`upcast_graph`).
        lazy: Leave out the graph's Python code (for an Interpreter); False for a compiler.

    Returns:
        The graph and the inputs. Tensors that share storage, inputs or attributes, do so in the
        copy too.

    Raises:
        CaseError: It holds a TorchScript object that cannot be copied.
        PrecisionRefused: `upcast`, and the program has no float64 form.
    """
    private = copy_graph_module(gm, lazy=lazy)
    _own_modules(private)
    held = held_state(private)
    convert = wider if upcast else None
    clones = clone_inputs([*inputs, *(each.value for each in held)], convert=convert)
    for each, clone in zip(held, clones[len(inputs) :], strict=True):
        setattr(each.owner, each.name, clone)
    if upcast:
        upcast_graph(private)
    return private, clones[: len(inputs)]


RAISING_NODE, RAISING_OPERATOR = "ctk_raising_node", "ctk_raising_operator"
"""Attributes of an exception of an eager run: name and operator of the node that raised it."""


def find_raising_node(error: BaseException) -> str | None:
    """Return the name of the node that raised an exception in an eager run; None elsewhere."""
    return getattr(error, RAISING_NODE, None)


def find_raising_operator(error: BaseException) -> str | None:
    """Return the operator that raised in an eager run; a reduction may rename its node."""
    return getattr(error, RAISING_OPERATOR, None)


@cache
def _checkpoint() -> object:
    return operators.higher_order_op("tag_activation_checkpoint")


class Eager(Interpreter):
    """Runs a graph node by node, with flat inputs, without its calling convention.

    Unlike `gm(...)` it needs no generated code, prints nothing to stderr when an op raises, and
    leaves no transform entered then. A checkpointed region is run as it is: torch's own operator is
    meant to be traced; in eager it draws other random numbers when it recomputes the region, and
    its gradients are wrong (torch 2.11, 2.13).
    """

    def __call__(self, *inputs: object) -> object:
        with process_state_kept(), limit_rounds(self.module):
            return self.run(*inputs, enable_io_processing=False)

    def run_node(self, n: Node) -> object:
        """Run a node; record the name and operator of the outermost node on an exception."""
        try:
            if is_kernel_call(n.target):
                check_launch(n, self.fetch_args_kwargs_from_env(n)[1])
            return super().run_node(n)
        except Exception as error:
            with contextlib.suppress(AttributeError):  # an exception with slots takes no attribute
                setattr(error, RAISING_NODE, n.name)
                setattr(error, RAISING_OPERATOR, self._operator(n))
            raise

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, or run the region of a checkpoint."""
        if target is _checkpoint():
            region, *inputs = args
            return type(self)(region)(*inputs)
        return super().call_function(target, args, kwargs)

    def _operator(self, n: Node) -> str:
        """Return the operator of a node, by a name that is equal in any graph: a module's type."""
        if n.op == "call_module":
            return type(self.fetch_attr(str(n.target))).__name__
        packet = getattr(n.target, "overloadpacket", n.target)
        return str(getattr(packet, "__name__", packet))


class UpcastEager(Eager):
    """Runs an upcast graph; the node that refuses float64 is named."""

    def run_node(self, n: Node) -> object:
        try:
            return super().run_node(n)
        except PrecisionRefused:
            raise
        except Exception as error:
            target = getattr(n.target, "__name__", n.target)
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise PrecisionRefused(f"node {n.name} ({target}) refuses float64: {reason}") from error


def _own_modules(gm: GraphModule) -> None:
    """Replace called modules by copies; their tensors, still shared, are cloned with the others."""
    for graph_module in [m for m in gm.modules() if isinstance(m, GraphModule)]:
        for target in {str(n.target) for n in graph_module.graph.nodes if n.op == "call_module"}:
            parent, _, name = target.rpartition(".")
            holder = graph_module.get_submodule(parent)
            called = getattr(holder, name)
            if not isinstance(called, GraphModule):
                setattr(holder, name, copy.deepcopy(called, _shared(called)))


def _shared(called: Module) -> dict[int, object]:
    """Return the state of a module and its children, for a `deepcopy` that shall not clone it."""
    tables = [vars(module) for module in called.modules()]
    return {id(state): state for table in tables for state in state_in(table)}


class HeldState(NamedTuple):
    """An attribute of a module that is state, or a list or dict of it."""

    owner: Module
    path: str
    name: str
    value: object


def held_state(gm: Module) -> list[HeldState]:
    """Return the state that a module holds, in a fixed order; an attribute of each module once."""
    held_states: list[HeldState] = []
    for path, module in gm.named_modules():
        own = {
            **dict(module.named_parameters(recurse=False, remove_duplicate=False)),
            **dict(module.named_buffers(recurse=False, remove_duplicate=False)),
            **{name: value for name, value in vars(module).items() if name not in _NOT_STATE},
        }
        held_states += [
            HeldState(module, f"{path}.{name}" if path else name, name, value)
            for name, value in own.items()
            if next(state_in(value), None) is not None
        ]
    return held_states


def held_tensors(gm: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that a module holds, by path; those in a list are `path[0]`, `path[1]`."""
    for each in held_state(gm):
        if isinstance(each.value, Tensor):
            yield each.path, each.value
            continue
        for index, state in enumerate(state_in(each.value)):
            if isinstance(state, Tensor):
                yield f"{each.path}[{index}]", state


def plain_attributes(module: Module) -> dict[str, object]:
    """Return the numbers, texts and the like that a module has as attributes of its own."""
    own = vars(module).items()
    return {name: each for name, each in own if name not in _NOT_STATE and _is_plain(each)}


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, cast("Sequence[object]", value)))
    return value is None or isinstance(value, _PLAIN)


_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)

_NOT_STATE = frozenset(vars(GraphModule({}, Graph()))) | {"meta"}
"""Attributes of every module: its tables of parameters, buffers and hooks."""


def upcast_graph(gm: GraphModule) -> None:
    """Rewrite `gm` and its nested graphs in place, so that no op asks for a float below float64.

    Raises:
        PrecisionRefused: A node reads bits as another dtype, or asks for float8 or quantized
            numbers.
    """
    for module in gm.modules():
        if isinstance(module, GraphModule):
            _upcast(module.graph)
            module.recompile()


def _upcast(graph: Graph) -> None:
    for node in graph.nodes:
        name = str(getattr(node.target, "__name__", node.target))
        if node.op not in ("call_function", "call_method") or "autocast" in name:
            continue
        if reads_bits(name, (*node.args, *node.kwargs.values())):
            raise PrecisionRefused(
                f"node {node.name} ({node.target}) reads the bits of a value as another dtype,"
                " which has no float64 form; compared in its own dtype"
            )
        _widen(node)


def _widen(node: Node) -> None:
    if node.op == "call_method" and node.target in METHODS:
        node.target = METHODS[str(node.target)]
    node.args = map_aggregate(node.args, _wide)
    node.kwargs = map_aggregate(node.kwargs, _wide)


def _wide(value: object) -> Argument:
    return cast(Argument, wide_argument(value))
