"""Make a program private to one run: its own graph, inputs, buffers and modules.

A compiler rewrites the graph that it is given, and a program may write into its inputs and buffers.
What it does not do: it runs nothing.
"""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.nn import Module

from ctk.compiler.errors import PrecisionRefused
from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import first_line
from ctk.repro_templates.float64 import wider
from ctk.toolkit.run.float64 import upcast_graph


def private_copy(
    gm: GraphModule,
    inputs: Sequence[object],
    *,
    dtype: torch.dtype | None = None,
    lazy: bool = True,
) -> tuple[GraphModule, tuple[object, ...]]:
    """Return a copy of a program that a run may change at will.

    Args:
        gm: The graph; neither it nor its tensors change.
        inputs: One value per placeholder; only read.
        dtype: `torch.float64` makes it the float64 reference (float64.py). None: as it is.
        lazy: Leave out the graph's Python code (for an Interpreter); False for a compiler.

    Returns:
        The graph and the inputs. Tensors that share storage, inputs or attributes, do so in the
        copy too.

    Raises:
        PrecisionRefused: `dtype` is given, and the program has no float64 form.
    """
    private = copy_graph_module(gm, lazy=lazy)
    _own_modules(private)
    held = list(_held_tensors(private))
    if dtype not in (None, torch.float64):
        raise ValueError(f"a program can run in its own dtypes or in float64, not in {dtype}")
    convert = wider if dtype is not None else None
    clones = clone_inputs([*inputs, *(tensor for _, _, tensor in held)], convert=convert)
    for (module, name, _), tensor in zip(held, clones[len(inputs) :], strict=True):
        setattr(module, name, tensor)
    if dtype is not None:
        upcast_graph(private)
    return private, clones[: len(inputs)]


class Eager(Interpreter):
    """Runs a graph node by node, with flat inputs, whatever its calling convention says.

    Unlike `gm(...)` it needs no generated code, and prints nothing to stderr when an op raises.
    """

    def __call__(self, *inputs: object) -> object:
        return self.run(*inputs, enable_io_processing=False)


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
                keep = {id(t): t for t in (*called.parameters(), *called.buffers())}
                setattr(holder, name, copy.deepcopy(called, keep))


def _held_tensors(gm: GraphModule) -> Iterator[tuple[Module, str, Tensor]]:
    for module in gm.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            yield module, name, parameter
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            yield module, name, buffer
