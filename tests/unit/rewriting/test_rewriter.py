"""Rewriter: inserted nodes have types; what breaks names the passes before and what to change."""

import pytest
import torch

from ctk.compiler.errors import VerifyError
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.passes import aten_graph, run_pass

aten = torch.ops.aten


def product(a, b):
    return torch.relu(a @ b)


def graph():
    return aten_graph(product, torch.randn(2, 3), torch.randn(3, 4))


def on_relu(edit):
    """Return a pass that makes one rewrite at the relu of `product`."""

    def run(rewriter: Rewriter) -> None:
        (relu,) = rewriter.graph.find_nodes(op="call_function", target=aten.relu.default)
        rewriter.rewrite("relu(x) -> edited", [relu], lambda _: edit(rewriter, relu))

    return FunctionPass("edits", run, "rewriter")


def test_an_inserted_node_has_its_type_at_once():
    seen = []

    def edit(rewriter, relu):
        new = rewriter.insert(aten.add.Tensor, (relu.args[0], 1), {"alpha": 2}, before=relu)
        seen.append(new.meta["val"])
        relu.replace_all_uses_with(new)
        rewriter.graph.erase_node(relu)

    gm = graph()
    record = run_pass(gm, on_relu(edit))
    assert [(value.shape, value.dtype) for value in seen] == [((2, 4), torch.float32)]
    assert record.rewrites[0].nodes == ("relu", "add_tensor")


def test_a_graph_without_types_gets_a_node_without_one():
    gm = torch.fx.symbolic_trace(product)
    seen = []

    def run(rewriter):
        relu = next(n for n in rewriter.nodes() if n.target is torch.relu)

        def edit(_):
            seen.append(rewriter.insert(torch.abs, (relu.args[0],), before=relu))
            relu.replace_all_uses_with(seen[0])

        rewriter.rewrite("relu -> abs", [relu], edit)

    run_pass(gm, FunctionPass("edits", run, "rewriter"), stage="pre_grad")
    assert "val" not in seen[0].meta


def test_a_node_that_cannot_run_is_refused_where_it_is_inserted():
    def edit(rewriter, relu):
        rewriter.insert(aten.mm.default, (relu.args[0], relu.args[0]), before=relu)

    recorder = Recorder()
    with pytest.raises(VerifyError) as caught:
        run_pass(graph(), on_relu(edit), observer=recorder)
    text = str(caught.value)
    assert text.startswith("pass joint/edits left a node that cannot run on the types of its op")
    assert "> %mm_default" in text
    assert "Pass author: call aten.mm.default with operands that it takes" in text
    (error,) = recorder.log.errors()
    assert error.rewrite is not None
    assert error.node == "mm_default"


def test_insert_belongs_inside_an_edit():
    def run(rewriter):
        for node in list(rewriter.nodes()):
            if node.target is aten.relu.default:
                rewriter.insert(aten.abs.default, (node.args[0],), before=node)

    with pytest.raises(RuntimeError, match=r"outside an edit: call it in the function that"):
        run_pass(graph(), FunctionPass("careless", run, "rewriter"))


def test_a_broken_promise_names_the_passes_that_ran_before():
    def edit(rewriter, relu):
        relu.replace_all_uses_with(relu.args[0].args[0])

    idle = FunctionPass("idle", lambda rewriter: None, "rewriter")
    disabled = FunctionPass("disabled", lambda rewriter: None, "rewriter")
    numbering = Numbering(config=Config(disable=("disabled",)))
    with pytest.raises(VerifyError) as caught:
        run_stage(graph(), "joint", [idle, disabled, idle, on_relu(edit)], numbering)
    text = str(caught.value)
    assert "pass joint/edits changed the type of" in text
    assert "Passes that ran before it in this stage: joint/idle, joint/idle#2.\n" in text
    assert text.endswith(
        "Pass author: insert a conversion to the old type, or leave the node alone."
    )
