"""Pack the constant weights of an LSTM's layers for oneDNN, once.

Rule: `mkldnn_rnn_layer(x, v, w, ...)` -> the same with both items of `pack(v, w)`, where `pack` is
`mkldnn::_reorder_mkldnn_rnn_layer_weight`. It stays a call of the graph, computed once by code
generation (`codegen/packing.py`), because its result cannot be stored.
Preconditions: a CPU with oneDNN; inference; `v` and `w` are constants of the type of `x`, which
oneDNN computes with. Reassociates: oneDNN may take another kernel for packed weights.

Source: `mkldnn_rnn_layer` of `_register_weight_pack_pass` in
`torch/_inductor/fx_passes/mkldnn_fusion.py`.
"""

import operator
from functools import partial

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.inductor import onednn

_HIDDEN_SIZE, _REVERSE, _HAS_BIASES, _BATCH_FIRST, _TRAIN = 10, 7, 12, 14, 15
_COUNT = 16
"""The places of a layer's settings, and the number of its arguments."""


class PrepackRecurrent(Pass):
    """Pack the constant weights of an LSTM's layers for oneDNN, once."""

    name = "prepack_recurrent"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if _is_packable(node):
                make = partial(_pack, rewriter, node)
                rewriter.replace_by("LSTM layer(x, v, w) -> packed", [node], make)


def _is_packable(node: Node) -> bool:
    if node.target is not onednn.recurrent() or node.kwargs or len(node.args) != _COUNT:
        return False
    types = [tensor_of(each) for each in node.args[:3]]
    if node.args[_TRAIN] is not False or not all(map(is_constant, node.args[1:3])):
        return False
    if len({None if each is None else (each.dtype, each.device.type) for each in types}) != 1:
        return False
    return types[0] is not None and types[0].device.type == "cpu" and onednn.runs(types[0].dtype)


def _pack(rewriter: Rewriter, node: Node) -> Node:
    call = rewriter.inserter(before=node)
    weights = node.args[1:3]
    settings = (node.args[at] for at in (_HIDDEN_SIZE, _REVERSE, _HAS_BIASES, _BATCH_FIRST))
    packed = call(onednn.pack_recurrent(), *weights, *settings)
    packed.meta["val"] = [value_of(each) for each in weights]  # torch has no rule for its type
    items = [call(operator.getitem, packed, index) for index in range(2)]
    return call(node.target, node.args[0], *items, *node.args[3:])


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, h = torch.ones(3, 1, 2), torch.zeros(1, 4)
    v, w = (torch.nn.Parameter(torch.ones(16, size)) for size in (2, 4))
    b = torch.nn.Parameter(torch.ones(16))
    settings = (False, [], 2, 4, 1, True, False, False, False)
    return [
        (
            lambda x, h, v, w, b: onednn.recurrent()(x, v, w, b, b, h, h, *settings)[0].sin(),
            (x, h, v, w, b),
        ),
    ]


PASS = PrepackRecurrent()
