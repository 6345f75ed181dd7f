"""Write arithmetic on symbolic sizes as TorchScript has it. Values stay (numerics: exact).

Rules:
    torch.sym_max(a, b)             -> max(a, b)     and so on by the table `SYMBOLIC`
    torch.sym_not(a), not a         -> a == False
    a ** b                          -> a ** b        if the result is a float; there is no int one
    aten._local_scalar_dense(x)     -> int(x)        float(x) or bool(x), by the traced type
    aten.item(x)                    -> the same
"""

import operator

from torch.fx import Graph, Node

from ctk.compiler.codegen.torchscript.refuse import BY_CASE, SCALAR_READS, SYMBOLIC, refusal
from ctk.compiler.fx.types import number_type, value_of
from ctk.compiler.torch_compat.fx import operators


def adapt_symbols(graph: Graph) -> None:
    """Rewrite by the module's rules.

    Raises:
        CodegenUnsupported: A number is read from a tensor and the graph does not say of which type
            it is, or a power is not a float.
    """
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in SYMBOLIC:
            node.target = SYMBOLIC[node.target]
        elif node.target in BY_CASE:
            _adapt_by_case(node)
        elif _reads_scalar(node):
            node.target = _converter(node)


def _adapt_by_case(node: Node) -> None:
    if node.target is not operator.pow:
        node.target, node.args = operator.eq, (node.args[0], False)
    elif number_type(value_of(node)) is not float:
        raise refusal(node, "a power that is not known to be a float; TorchScript's is always one")


def _reads_scalar(node: Node) -> bool:
    if operators.kind_of(node.target) != "overload":
        return False
    return operators.qualified_name_of(node.target) in SCALAR_READS


def _converter(node: Node) -> type:
    found = number_type(value_of(node))
    if found is None:
        raise refusal(node, "its result is a number of unknown type (no traced value on the node)")
    return found
