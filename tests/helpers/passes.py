"""Helpers for tests of passes: trace a function to ATen, run one pass, print the graph."""

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.compile_log.recorder import Recorder

aten = torch.ops.aten


def aten_graph(function, *inputs, tracing_mode="fake"):
    """Return the ATen graph of a function with fake values on its nodes; tensors that it names are
    constants."""
    trace = make_fx(function, tracing_mode=tracing_mode, _allow_non_fake_inputs=True)
    return trace(*inputs)


def without_aliases(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the graph without the nodes that tracing puts behind a view of a dtype: `detach`, or
    `alias` since torch 2.15. AOTAutograd writes none."""
    for node in gm.graph.nodes:
        if node.target in (aten.detach.default, aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def torch_graph(program, *inputs):
    """Return the graph of torch-level calls of a function or module, with fake values on it."""
    gm = fx.symbolic_trace(program)
    mode = fake.new_fake_mode()
    given = [fake.to_fake(each, mode) for each in inputs]
    FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*given)
    return gm


def run_pass(gm: fx.GraphModule, step: Pass, *, stage="joint", config=None, observer=None):
    """Run one pass over a graph in place; return what the observer recorded."""
    recorder = observer or Recorder(keep_rewrites=True)
    run_stage(gm, stage, [step], Numbering(recorder, config or Config()))
    return recorder.log.passes()[-1]


def text_of(gm: fx.GraphModule) -> str:
    """Return the graph's nodes, one per line, without addresses."""
    return "\n".join(line for n in gm.graph.nodes if (line := n.format_node()) is not None) + "\n"


def rules_of(record) -> list[str]:
    return [rewrite.id.rule for rewrite in record.rewrites]


def unchanged(function, step, *inputs, stage="joint"):
    """Return whether a pass leaves the graph of a function alone."""
    gm = aten_graph(function, *inputs)
    record = run_pass(gm, step, stage=stage)
    return rules_of(record) == [] and not record.changed


def randn(*sizes):
    return torch.randn(*sizes)
