"""A code generator for tests: one kernel per call node, so that each can be vetoed and checked.

`per_node({aten.sin.default: aten.cos.default})` plants a wrong kernel for one operator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, guard_count
from ctk.compiler.codegen.kernels import Codegen, KernelContext
from ctk.compiler.fx.extract import extract

Wrong = Mapping[object, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel in the order of the graph: the values that it takes and gives, by name."""

    run: Callable[..., Sequence[object]]
    operands: tuple[str, ...]
    results: tuple[str, ...]


def per_node(wrong: Wrong | None = None, name: str = "per_node") -> Codegen:
    """Return the generator; for the operators in `wrong` its kernels call something else."""
    return Codegen(name, partial(compile_per_node, wrong or {}), suffix=".txt")


def compile_per_node(
    wrong: Wrong, gm: GraphModule, example_inputs: Sequence[object], context: KernelContext
) -> BoxedCallable:
    """Compile each call node of a graph by itself, and call the kernels in order."""
    nodes = list(gm.graph.nodes)
    calls = [kernel_of(gm, node, wrong, context) for node in nodes if node.op.startswith("call_")]
    inputs = [node.name for node in nodes if node.op == "placeholder"]
    fixed = {node.name: getattr(gm, node.target) for node in nodes if node.op == "get_attr"}
    output = gm.graph.output_node().args[0]

    def run(args: list[Any]) -> Any:
        values = {**fixed, **dict(zip(inputs, args, strict=True))}
        args.clear()
        for call in calls:
            given = [values[name] for name in call.operands]
            values.update(zip(call.results, call.run(*given), strict=True))
        return map_arg(output, lambda node: values[node.name])

    guarded = guard_count(run, len(inputs))
    return as_boxed(guarded, lambda: "\n".join(node.format_node() or "" for node in nodes))


def kernel_of(gm: GraphModule, node: Node, wrong: Wrong, context: KernelContext) -> Call:
    """Make the kernel of one node, unless it is vetoed: then its own operator runs."""
    kernel = context.kernel(node.name, nodes=(node.name,))
    part = extract(gm, kernel.nodes)
    if node.target in wrong and not kernel.vetoed:
        (copy,) = (each for each in part.module.graph.nodes if each.name == node.name)
        copy.target = wrong[node.target]
        part.module.recompile()
    run = kernel.made(part.module, source=lambda: part.module.code, results=part.results)
    return Call(run, part.operands, part.results)
