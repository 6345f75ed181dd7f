"""Every smallest change of a graph and its inputs, made without the reducer's own edits.

What a reduction ends with is 1-minimal if none of these still fails: one unit is cut to inputs; a
node is bypassed by any value that it depends on, through a reshape, an expansion and a cast where
those are needed; a result is dropped; some dimensions of inputs become one smaller; one value that
is not zero becomes zero. Sub-graphs are changed in the same ways, but for cuts. A change may be
nonsense: whoever asks runs it first.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from ctk.compiler.fx.effects import mutated_arguments
from tests.helpers.reduce_families.predicates import copies, run

Inputs = tuple[object, ...]
MOST_DIMS = 8
"""Of inputs: more have too many subsets; then one, two and all of the same size are tried."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One changed problem.

    Attributes:
        what: The change, in words.
    """

    what: str
    graph: GraphModule
    inputs: Inputs


def smaller_graphs(gm: GraphModule, inputs: Inputs) -> Iterator[Changed]:
    """Yield every removal of a node or a result, and every bypass."""
    values = eager_values(gm, inputs)
    yield from _cuts(gm, inputs, values)
    yield from _dropped_results(gm, inputs)
    for path in _graphs(gm):
        yield from _bypasses(gm, inputs, path, {} if path else values)


def runs(changed: Changed) -> bool:
    """Return whether a changed graph runs in eager, and gives tensors or numbers."""
    try:
        results = run(changed.graph, changed.inputs)
    except Exception:
        return False
    assert isinstance(results, (tuple, list))
    return not any(isinstance(result, (tuple, list)) for result in results)


def eager_values(gm: GraphModule, inputs: Inputs) -> dict[str, object]:
    """Return what each node of the outermost graph gives, by name."""
    values: dict[str, object] = {}

    class Watch(Interpreter):
        def run_node(self, n: Node) -> object:
            value = super().run_node(n)
            values[n.name] = value.detach().clone() if isinstance(value, Tensor) else value
            return value

    with torch.no_grad():
        Watch(gm).run(*copies(inputs))
    return values


def _graphs(gm: GraphModule) -> list[str]:
    """Return where a graph and those inside it are."""
    return [path for path, module in gm.named_modules() if isinstance(module, GraphModule)]


def _calls(gm: GraphModule) -> list[Node]:
    return [node for node in gm.graph.nodes if node.op.startswith("call")]


def _cuts(gm: GraphModule, inputs: Inputs, values: dict[str, object]) -> Iterator[Changed]:
    """Cut each node out: what others read of it becomes an input, or a constant if a number."""
    for node in _calls(gm):
        if not isinstance(values[node.name], tuple):
            yield _edited(gm, inputs, f"cut {node.name}", "", _cut(node.name, values))


def _cut(name: str, values: dict[str, object]) -> Callable[[GraphModule, list[object]], None]:
    def edit(new: GraphModule, given: list[object]) -> None:
        node, value = _named(new, name), values[name]
        _forget_results(new, [node])
        if not node.users:
            pass
        elif isinstance(value, Tensor):
            with new.graph.inserting_before(next(iter(new.graph.nodes))):
                node.replace_all_uses_with(new.graph.placeholder("cut"))
            given.insert(0, value)
        else:
            for user in list(node.users):
                user.args = torch.fx.node.map_arg(user.args, lambda n: value if n is node else n)
        _erase(new, [node])

    return edit


def _bypasses(
    gm: GraphModule, inputs: Inputs, path: str, values: dict[str, object]
) -> Iterator[Changed]:
    """Replace each node by each value that it depends on."""
    inner = gm.get_submodule(path) if path else gm
    for node in _calls(inner):
        for source in _ancestors(node):
            pair = (node.name, source.name)
            what = f"{path} {node.name} -> {source.name}"
            yield _edited(gm, inputs, what, path, _bypass(*pair))
            form, other = values.get(node.name), values.get(source.name)
            if isinstance(form, Tensor) and isinstance(other, Tensor):
                yield _edited(gm, inputs, f"{what}, adapted", path, _bypass(*pair, form, other))


def _ancestors(node: Node) -> list[Node]:
    found: dict[Node, None] = {}
    todo = list(node.all_input_nodes)
    while todo:
        source = todo.pop()
        if source not in found and source.op != "get_attr":
            found[source] = None
            todo.extend(source.all_input_nodes)
    return list(found)


def _bypass(
    name: str, source: str, form: Tensor | None = None, given: Tensor | None = None
) -> Callable[[GraphModule, list[object]], None]:
    """Return the edit; with `form` the value gets the shape and dtype of the bypassed one."""

    def edit(new: GraphModule, inputs: list[object]) -> None:
        node, value = _named(new, name), _named(new, source)
        with new.graph.inserting_before(node):
            if form is not None and given is not None:
                value = _adapted(new, value, form, given)
        node.replace_all_uses_with(value)
        _erase(new, [node])

    return edit


def _adapted(new: GraphModule, value: Node, form: Tensor, given: Tensor) -> Node:
    if given.dtype != form.dtype:
        value = new.graph.call_method("to", (value, form.dtype))
    if given.shape == form.shape:
        return value
    if given.numel() == form.numel():
        return new.graph.call_method("reshape", (value, tuple(form.shape)))
    return new.graph.call_method("expand", (value, tuple(form.shape)))


def _dropped_results(gm: GraphModule, inputs: Inputs) -> Iterator[Changed]:
    for node in gm.graph.output_node().all_input_nodes:
        name = node.name

        def edit(new: GraphModule, given: list[object], name: str = name) -> None:
            _forget_results(new, [_named(new, name)])
            _erase(new, [_named(new, name)])

        yield _edited(gm, inputs, f"no result {name}", "", edit)


def smaller_dimensions(gm: GraphModule, inputs: Inputs) -> Iterator[Changed]:
    """Take the first or the last slice off some dimensions of inputs at once."""
    dims = [
        (at, dim)
        for at, value in enumerate(inputs)
        if isinstance(value, Tensor)
        for dim in range(value.dim())
        if value.shape[dim] > 1
    ]
    for chosen in _subsets(dims, inputs):
        for start in (0, 1):
            given = list(inputs)
            for at, dim in chosen:
                value = given[at]
                assert isinstance(value, Tensor)
                given[at] = value.narrow(dim, start, value.shape[dim] - 1).clone()
            yield Changed(f"dimensions {chosen} from {start}", gm, tuple(given))


def _subsets(dims: list[tuple[int, int]], inputs: Inputs) -> Iterator[tuple[tuple[int, int], ...]]:
    if len(dims) <= MOST_DIMS:
        for count in range(1, len(dims) + 1):
            yield from itertools.combinations(dims, count)
        return
    yield from itertools.combinations(dims, 1)
    yield from itertools.combinations(dims, 2)
    sizes: dict[int, list[tuple[int, int]]] = {}
    for at, dim in dims:
        value = inputs[at]
        assert isinstance(value, Tensor)
        sizes.setdefault(value.shape[dim], []).append((at, dim))
    yield from (tuple(same) for same in sizes.values())


def more_zeros(gm: GraphModule, inputs: Inputs) -> Iterator[Changed]:
    """Yield the change of each value that is not zero to zero."""
    for at, value in enumerate(inputs):
        if not isinstance(value, Tensor):
            continue
        for place in value.nonzero().tolist():
            changed = value.detach().clone()
            changed[tuple(place)] = 0
            yield Changed(f"input {at} {place} = 0", gm, (*inputs[:at], changed, *inputs[at + 1 :]))


def _edited(
    gm: GraphModule,
    inputs: Inputs,
    what: str,
    path: str,
    edit: Callable[[GraphModule, list[object]], None],
) -> Changed:
    new, given = copy.deepcopy(gm), list(inputs)
    inner = new.get_submodule(path) if path else new
    assert isinstance(inner, GraphModule)
    edit(inner, given)
    if not path:
        _drop_unused_inputs(new, given)
    inner.recompile()
    return Changed(what, new, tuple(given))


def _named(gm: GraphModule, name: str) -> Node:
    return next(node for node in gm.graph.nodes if node.name == name)


def _forget_results(gm: GraphModule, gone: list[Node]) -> None:
    """Drop nodes from a flat tuple of results; one result always stays."""
    output = gm.graph.output_node()
    results = output.args[0]
    assert isinstance(results, (tuple, list))
    kept = tuple(result for result in results if result not in gone)
    if kept:
        output.args = (kept,)


def _erase(gm: GraphModule, nodes: list[Node]) -> None:
    """Erase nodes that nobody reads, then what only they have read, but for in-place ops."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        is_kept = node.users or node.op in ("placeholder", "output") or node not in gm.graph.nodes
        if is_kept or (node not in nodes and mutated_arguments(node)):
            continue
        sources = node.all_input_nodes
        gm.graph.erase_node(node)
        todo.extend(sources)


def _drop_unused_inputs(gm: GraphModule, given: list[object]) -> None:
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for at in reversed(range(len(placeholders))):
        if not placeholders[at].users:
            gm.graph.erase_node(placeholders[at])
            del given[at]
