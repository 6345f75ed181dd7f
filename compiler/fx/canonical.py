"""A captured graph as text that means the same in every process: what a cache is keyed by.

    %0 placeholder                                  names of nodes are numbers
    %1 call_function torch.nn.functional.linear(%0,attribute(weight),None){}
    %2 call_function aten.relu.default(%1){}
    %3 output (%2,){}

Functions stand there by their qualified names, sub-graphs by their own text, constants by a digest
of their bytes. Parameters and buffers are named: what they are is part of the inputs, and what is
in them is not part of the text. Of what is noted on nodes, all counts that is not known to be of no
effect. One pass over the nodes.

What has no such text is refused with the reason: a function outside torch, a Triton kernel of the
program, a module with hooks, a checkpoint that asks a function what to save.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.errors import Uncacheable
from ctk.compiler.fx.literals import NoText, text_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import functions, graphs
from ctk.compiler.torch_compat.fx.functions import Operator

_NO_EFFECT = frozenset({
    "creation_timestamp", "desc", "example_value", "from_node", "grapharg", "nn_module_stack",
    "original_aten", "original_aten_name", "seq_nr", "source_fn_stack", "source_fn", "stack_trace",
    "tensor_dict", "tensor_meta", "torch_fn", "fwd_nn_module_stack", "fwd_source_fn_stack", "val",
    "unbacked_bindings", "arg_kwarg_vals", "is_gradient_acc", "autograd_backward",
    "eager_input_vals",
})  # fmt: skip
"""What is noted on nodes and follows from the graph and its inputs, or says where it came from."""

_MODULE_STATE = frozenset(vars(torch.nn.Module())) | {"training"}


@dataclass(slots=True)
class CanonicalGraph:
    """The text of a graph, and what it calls that only the program knows.

    Attributes:
        text: See the head of this file.
        operators: Operators that are not torch's own, by name.
    """

    text: str
    operators: Mapping[str, Operator]


def canonical_graph(gm: GraphModule) -> CanonicalGraph:
    """Return the text of a graph.

    Raises:
        Uncacheable: Something in it has no text that is the same in every process.
    """
    writer = _Writer()
    text = "\n".join(writer.graph(gm))
    return CanonicalGraph(text, dict(sorted(writer.operators.items())))


@dataclass(slots=True)
class _Writer:
    """Writes one graph with its sub-graphs; digests each storage of a constant once."""

    operators: dict[str, Operator] = field(default_factory=dict[str, Operator])
    digests: dict[int, str] = field(default_factory=dict[int, str])
    tensors: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    graphs: dict[GraphModule, int] = field(default_factory=dict[GraphModule, int])

    def graph(self, gm: GraphModule) -> Iterator[str]:
        """Yield the lines of a graph."""
        if "_checkpoint_context_fn" in gm.meta:
            raise Uncacheable("a checkpoint asks a function what to save (context_fn)")
        convention = graphs.convention_of(gm.graph)
        if convention:
            yield f"convention {convention}"
        numbers: dict[Node, int] = {}
        for number, node in enumerate(gm.graph.nodes):
            try:
                yield f"%{number} {self._node(gm, node, numbers)}"
            except NoText as error:
                raise Uncacheable(f"the node {node.name} of the graph has {error}") from error
            numbers[node] = number

    def _node(self, gm: GraphModule, node: Node, numbers: Mapping[Node, int]) -> str:
        def other(value: object) -> str | None:
            return f"%{numbers[value]}" if isinstance(value, Node) else self._value(value)

        head = f"{node.op} {self._target(gm, node)}"
        args = text_of(tuple(node.args), other)
        kwargs = text_of(node.kwargs, other)
        noted = {key: each for key, each in node.meta.items() if key not in _NO_EFFECT}
        return f"{head}{args}{kwargs}{text_of(noted, other) if noted else ''}"

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
        """Return the text of an argument that is no plain value and no node."""
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
            what = functions.described(function)
            raise Uncacheable(f"the graph calls {what}, which is not torch's")
        return name

    def _attribute(self, gm: GraphModule, name: str) -> str:
        """Return a parameter or buffer by its name, a constant by its bytes."""
        owner, _, last = name.rpartition(".")
        holder = gm.get_submodule(owner)
        value = getattr(holder, last)
        if isinstance(value, torch.Tensor):
            is_input = graphs.is_registered(holder, last)
            return f"attribute({name})" if is_input else self._constant(value)
        return text_of(value, self._value)

    def _sub_graph(self, gm: GraphModule) -> str:
        """Return the text of a sub-graph; where it stands again, its number."""
        if gm in self.graphs:
            return f"graph#{self.graphs[gm]}"
        self.graphs[gm] = len(self.graphs)
        lines = [f"  {line}" for line in self.graph(gm)]
        held = [name for name, _ in (*gm.named_parameters(), *gm.named_buffers())]
        return "\n".join([f"graph({','.join(held)}){{", *lines, "}"])

    def _module(self, path: str, module: torch.nn.Module) -> str:
        """Return a module that is called as a whole: its class, and all that it holds."""
        if isinstance(module, GraphModule):
            return f"{path} {self._sub_graph(module)}"
        if graphs.has_hooks(module):
            raise Uncacheable(f"the module {path} of the graph has hooks")
        held = {k: v for k, v in vars(module).items() if k not in _MODULE_STATE}
        inner = [self._module(f"{path}.{name}", each) for name, each in module.named_children()]
        own = text_of({"training": module.training, **held}, self._value)
        return f"{path} {self._function(type(module))}{own}[{','.join(inner)}]"

    def _constant(self, value: torch.Tensor) -> str:
        """Return a digest of a tensor's bytes, and how it looks at them."""
        if fake.is_fake(value) or type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Uncacheable(f"a constant of the graph is a {type(value).__name__}")
        if value.layout != torch.strided or value.is_quantized:
            raise Uncacheable(f"a constant of the graph is {value.layout}, quantized or not dense")
        storage = value.untyped_storage()
        place = graphs.storage_of(value)
        if place not in self.digests:
            self.digests[place] = _digest(storage)
            self.tensors.append(value)  # keeps the storage, so that no other gets its address
        layout = (value.dtype, value.device, value.shape, value.stride(), value.storage_offset())
        flags = (value.requires_grad, value.is_conj(), value.is_neg())
        return f"constant({self.digests[place]},{text_of((*layout, *flags))})"


def _digest(storage: torch.UntypedStorage) -> str:
    with fake.real_compute():
        data = torch.tensor([], dtype=torch.uint8, device=storage.device).set_(storage)
        return hashlib.sha256(data.cpu().numpy().data).hexdigest()
