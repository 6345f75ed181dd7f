"""Examples of a module: functions with inputs, traced to draws.

A pass without a pattern, or with a rare pattern (a convolution before a batch norm), has a function
`examples()` in its module:

    def examples():
        w = torch.nn.Parameter(torch.ones(3, 2))          # a parameter: a constant of the graph
        return [(lambda x, w: torch.mm(x, w) * 2, (torch.ones(4, 3), w))]

Further draws mutate the sizes, dtypes, layouts and constants of each example.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import cast

import torch
from torch import Tensor
from torch.fx import GraphModule, Node, symbolic_trace

from ctk.compiler.errors import ConfigError
from ctk.compiler.observe import Stage, first_line
from ctk.compiler.rewriting.base import Example
from ctk.compiler.torch_compat.fx import graphs
from ctk.toolkit.verify_rules.draws import CallResult, Draw, DrawCall, DrawProgram
from ctk.toolkit.verify_rules.operands import Constant, Operand, Place, TensorDraw, Variable


def load_examples(module: ModuleType, stage: Stage) -> tuple[Draw, ...]:
    """Return the draws of a module's examples.

    Raises:
        ConfigError: An example cannot be traced.
    """
    offered = getattr(module, "examples", None)
    if offered is None:
        return ()
    try:
        return tuple(
            trace_example(*each, stage=stage) for each in cast("Iterable[Example]", offered())
        )
    except Exception as error:
        raise ConfigError(
            f"examples() of {module.__name__} cannot be traced: {type(error).__name__}: "
            f"{first_line(error)}\nnext: return [(function of tensors, (tensor, ...)), ...]"
        ) from error


def trace_example(
    function: Callable[..., object], inputs: Sequence[Tensor], *, stage: Stage = "joint"
) -> Draw:
    """Return the draw of a function: traced to ATen; for `pre_grad` by symbolic tracing."""
    plain = [each.detach() for each in inputs]
    is_captured = stage == "pre_grad"
    graph = symbolic_trace(function) if is_captured else graphs.trace_calls(function, plain)
    graph.graph.eliminate_dead_code()
    operands = [
        _tensor_draw(tensor, "constant" if isinstance(each, torch.nn.Parameter) else "input")
        for each, tensor in zip(inputs, plain, strict=True)
    ]
    return read_graph(graph, operands)


def _tensor_draw(tensor: Tensor, place: Place) -> TensorDraw:
    return TensorDraw(tensor.dtype, tuple(tensor.shape), place=place)


def read_graph(module: GraphModule, operands: Iterable[TensorDraw]) -> Draw:
    """Return the draw of a graph of calls; its constants become operands."""
    reader, given = _GraphReader(), iter(operands)
    results: list[int] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            reader.bind(node, next(given))
        elif node.op == "get_attr":
            reader.bind(node, _tensor_draw(getattr(module, str(node.target)), "constant"))
        elif node.op in ("call_function", "call_method"):
            reader.call(node)
        elif node.op == "output":
            refs = (reader.parts[operand] for operand in node.all_input_nodes)
            results = [ref.number for ref in refs if isinstance(ref, CallResult)]
        else:
            raise ValueError(
                f"an example calls {node.target!r} by {node.op}: call functions and methods"
            )
    return Draw(DrawProgram(tuple(reader.calls), tuple(results)), reader.bound)


class _GraphReader:
    def __init__(self) -> None:
        self.calls: list[DrawCall] = []
        self.bound: dict[str, Operand] = {}
        self.parts: dict[Node, Variable | CallResult] = {}

    def bind(self, node: Node, operand: TensorDraw) -> None:
        self.bound[node.name] = operand
        self.parts[node] = Variable(node.name)

    def call(self, node: Node) -> None:
        args = tuple(self._part(each, node, str(at)) for at, each in enumerate(node.args))
        kwargs = {name: self._part(each, node, name) for name, each in node.kwargs.items()}
        self.parts[node] = CallResult(len(self.calls))
        self.calls.append(DrawCall(node.target, args, kwargs))

    def _part(self, value: object, node: Node, place: str) -> object:
        if isinstance(value, Node):
            return self.parts[value]
        if isinstance(value, Mapping):
            raise ValueError(f"{node.target} takes a mapping")
        if isinstance(value, (list, tuple)):
            if not all(isinstance(each, int) for each in value):
                return [self._part(each, node, f"{place}_{at}") for at, each in enumerate(value)]
            value = tuple(value)
        if not isinstance(value, (tuple, bool, int, float, torch.dtype)):
            return value
        name = f"{node.name}_{place}"
        self.bound[name] = Constant(value)
        return Variable(name)
