"""A graph as comparable text: equal texts mean equal programs, in every process.

    %0 placeholder                                  nodes are numbered, not named
    %1 call_function torch.nn.functional.linear(%0,attribute(weight),None){}
    %2 call_function aten.relu.default(%1){}
    %3 output (%2,){}

`graph_lines` numbers the nodes and writes their arguments; its caller writes the targets and other
values. Two callers:
1. `canonical_graph`, for the persistent cache: it refuses a graph without such a text (a function
   outside torch, a Triton kernel of the program, a module with hooks, a checkpoint with a
   `context_fn`). Functions appear by qualified name, sub-graphs by their text, constants by a
   digest of their bytes; parameters and buffers by name, because their types are part of the inputs
   and their numbers are not part of the compile. Metadata counts unless it is known to be harmless.
2. Fingerprints of questions (`toolkit/oracle/answers/fingerprint.py`): every graph has a text, the
   numbers of parameters and buffers count, metadata does not.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.errors import Uncacheable
from ctk.compiler.fx.literals import NoText, Other, text_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import functions, graphs
from ctk.compiler.torch_compat.fx.operator_types import Operator

_NO_EFFECT = frozenset({
    "creation_timestamp", "desc", "example_value", "from_node", "grapharg", "nn_module_stack",
    "original_aten", "original_aten_name", "seq_nr", "source_fn_stack", "source_fn", "stack_trace",
    "tensor_dict", "tensor_meta", "torch_fn", "fwd_nn_module_stack", "fwd_source_fn_stack", "val",
    "unbacked_bindings", "arg_kwarg_vals", "is_gradient_acc", "autograd_backward",
    "eager_input_vals",
})  # fmt: skip
"""Metadata that follows from the graph and its inputs, or only names the origin of a node."""

_MODULE_STATE = frozenset(vars(torch.nn.Module())) | {"training"}


def _no_metadata(_node: Node) -> Mapping[str, object]:
    return {}


def _effective_metadata(node: Node) -> Mapping[str, object]:
    return {key: value for key, value in node.meta.items() if key not in _NO_EFFECT}


@dataclass(slots=True)
class CanonicalGraph:
    """The text of a graph, and by name the operators in it that are not torch's own."""

    text: str
    operators: Mapping[str, Operator]


def graph_lines(
    gm: GraphModule,
    target: Callable[[GraphModule, Node], str],
    other: Other,
    *,
    metadata: Callable[[Node], Mapping[str, object]] = _no_metadata,
) -> Iterator[str]:
    """Yield one line per node.

    Args:
        gm: Only read; `target` writes its sub-graphs.
        other: Writes an argument that is neither a node nor a plain value (`literals.py`).
        metadata: Selects the metadata of a node that counts.

    Raises:
        Uncacheable: `other` has no text for an argument.
    """
    numbers: dict[Node, int] = {}

    def operand(value: object) -> str | None:
        return f"%{numbers[value]}" if isinstance(value, Node) else other(value)

    for number, node in enumerate(gm.graph.nodes):
        counted = metadata(node)
        try:
            args = text_of(tuple(node.args), operand)
            kwargs = text_of(dict(sorted(node.kwargs.items())), operand)
            noted = text_of(counted, operand) if counted else ""
            yield f"%{number} {node.op} {target(gm, node)}{args}{kwargs}{noted}"
        except NoText as error:
            raise Uncacheable(f"the node {node.name} of the graph has {error}") from error
        numbers[node] = number


def canonical_graph(gm: GraphModule) -> CanonicalGraph:
    """Return the text of a graph.

    Raises:
        Uncacheable: A part of it has no text that is the same in every process.
    """
    writer = _Writer()
    text = "\n".join(writer.graph(gm))
    return CanonicalGraph(text, dict(sorted(writer.operators.items())))


@dataclass(slots=True)
class _Writer:
    """Writes one graph with its sub-graphs; digests the storage of each constant once."""

    operators: dict[str, Operator] = field(default_factory=dict[str, Operator])
    digests: dict[int, str] = field(default_factory=dict[int, str])
    tensors: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    graphs: dict[GraphModule, int] = field(default_factory=dict[GraphModule, int])

    def graph(self, gm: GraphModule) -> Iterator[str]:
        """Yield the lines of a graph."""
        if "_checkpoint_context_fn" in gm.meta:
            raise Uncacheable("a checkpoint asks a function which values to save (context_fn)")
        convention = graphs.convention_of(gm.graph)
        if convention:
            yield f"convention {convention}"
        yield from graph_lines(gm, self._target, self._value, metadata=_effective_metadata)

    def _target(self, gm: GraphModule, node: Node) -> str:
        if node.op == "call_function":
            return self._function(node.target)
        if node.op == "get_attr":
            return self._attribute(gm, str(node.target))
        if node.op == "call_module":
            return self._module(str(node.target), gm.get_submodule(str(node.target)))
        if node.op == "call_method" and not functions.is_torchs_method(str(node.target)):
            raise Uncacheable(f"the graph calls Tensor.{node.target}, which is not torch's")
        return str(node.target) if node.op == "call_method" else ""

    def _value(self, value: object) -> str | None:
        """Return the text of an argument that is neither a plain value nor a node."""
        if fake.is_symbolic(value):
            return str(value)
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        if isinstance(value, GraphModule):
            return self._sub_graph(value)
        return self._function(value) if callable(value) else None

    def _function(self, function: object) -> str:
        if isinstance(function, Operator):
            if not functions.is_torchs_operator(function):
                self.operators[str(function)] = function
            return str(function)
        name = functions.name_of(function)
        if name is None:
            raise Uncacheable(
                f"the graph calls {functions.describe(function)}, which is not torch's"
            )
        return name

    def _attribute(self, gm: GraphModule, name: str) -> str:
        """Return the text of a parameter or buffer (its name) or a constant (its bytes)."""
        owner, _, last = name.rpartition(".")
        holder = gm.get_submodule(owner)
        value = getattr(holder, last)
        if isinstance(value, torch.Tensor):
            is_input = graphs.is_registered(holder, last)
            return f"attribute({name})" if is_input else self._constant(value)
        return text_of(value, self._value)

    def _sub_graph(self, gm: GraphModule) -> str:
        """Return the text of a sub-graph; from its second use on, its number."""
        if gm in self.graphs:
            return f"graph#{self.graphs[gm]}"
        self.graphs[gm] = len(self.graphs)
        lines = [f"  {line}" for line in self.graph(gm)]
        held = [name for name, _ in (*gm.named_parameters(), *gm.named_buffers())]
        return "\n".join([f"graph({','.join(held)}){{", *lines, "}"])

    def _module(self, path: str, module: torch.nn.Module) -> str:
        """Return the text of a module that is called as a whole: its class and its attributes."""
        if isinstance(module, GraphModule):
            return f"{path} {self._sub_graph(module)}"
        if graphs.has_hooks(module):
            raise Uncacheable(f"the module {path} of the graph has hooks")
        held = {k: v for k, v in vars(module).items() if k not in _MODULE_STATE}
        inner = [self._module(f"{path}.{name}", each) for name, each in module.named_children()]
        own = text_of({"training": module.training, **held}, self._value)
        return f"{path} {self._function(type(module))}{own}[{','.join(inner)}]"

    def _constant(self, value: torch.Tensor) -> str:
        """Return the text of a constant tensor: a digest of its storage, and its layout in it."""
        if fake.is_fake(value) or type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Uncacheable(f"a constant of the graph is a {type(value).__name__}")
        if value.layout != torch.strided or value.is_quantized:
            raise Uncacheable(f"a constant of the graph is {value.layout}, quantized or not dense")
        storage = value.untyped_storage()
        place = graphs.storage_of(value)
        if place not in self.digests:
            self.digests[place] = _digest(storage)
            self.tensors.append(value)  # keeps the storage alive, so that its address stays unique
        layout = (value.dtype, value.device, value.shape, value.stride(), value.storage_offset())
        flags = (value.requires_grad, value.is_conj(), value.is_neg())
        return f"constant({self.digests[place]},{text_of((*layout, *flags))})"


def _digest(storage: torch.UntypedStorage) -> str:
    with fake.real_compute():
        data = torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage)
        return hashlib.sha256(data.cpu().numpy().data).hexdigest()
