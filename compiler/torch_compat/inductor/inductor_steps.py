"""The passes of Inductor that it announces nowhere: plain calls in the functions of its stages.

Left out are sorts and `eliminate_dead_code`, which compute nothing.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule

from ctk.compiler.torch_compat.inductor.inductor_api import _inductor
from ctk.compiler.torch_compat.inductor.patch_sites import Site

_LOWERED = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class Step:
    """A function that Inductor calls to change a graph, without an announcement.

    Attributes:
        site: The place to patch; the graph is its first argument.
        stages: The stages in which it is a pass; elsewhere it belongs to another one.
        refused: Its result for the caller after a veto.
        adopts: Whether it returns a new `Graph`, which its caller installs.
        folds: Whether it makes inputs constants; it returns the positions of the remaining ones.
    """

    site: Site
    stages: tuple[str, ...]
    refused: Callable[..., Any]
    adopts: bool = False
    folds: bool = False

    @property
    def name(self) -> str:
        """Its name for users."""
        return self.site.name.lstrip("_")


def before_freezing() -> Step:
    """Return the step that comes before `freeze`, on CPUs where layouts are optimised."""
    site = Site(_inductor("freezing"), "convert_conv_weights_to_channels_last")
    return Step(site, ("frozen",), _nothing)


def steps() -> tuple[Step, ...]:
    """Return the steps of the stages, without the one before freezing."""
    found = (*_steps_of_stages(), *_steps_of_freezing())
    return tuple(step for step in found if hasattr(step.site.owner, step.site.name))


def _steps_of_stages() -> tuple[Step, ...]:
    pre_grad, joint = _inductor("fx_passes.pre_grad"), _inductor("fx_passes.joint_graph")
    post_grad, packing = _inductor("fx_passes.post_grad"), _inductor("fx_passes.mkldnn_fusion")
    quantization = _inductor("fx_passes.quantization")
    return (
        Step(Site(pre_grad, "numpy_compat_normalization"), ("pre_grad",), _nothing),
        Step(Site(pre_grad, "sink_cat_after_pointwise"), ("pre_grad",), _same),
        Step(Site(quantization, "quant_lift_up"), ("pre_grad",), _nothing),
        Step(Site(joint, "canonicalize_aten_ir_passes"), ("joint",), _nothing),
        Step(Site(_inductor("compile_fx"), "view_to_reshape"), _LOWERED, _nothing),
        Step(Site(packing, "grouped_gemm_pass"), _LOWERED, _nothing),
        Step(Site(quantization, "concat_linear_woq_int4"), _LOWERED, _nothing),
        Step(Site(post_grad, "micro_pipeline_tp_pass"), _LOWERED, _nothing),
    )


def _steps_of_freezing() -> tuple[Step, ...]:
    freezing, folding = _inductor("freezing"), _inductor("fx_passes.binary_folding")
    packing, frozen = _inductor("fx_passes.mkldnn_fusion"), ("frozen",)
    return (
        Step(Site(freezing, "view_to_reshape"), frozen, _nothing),
        Step(Site(freezing, "replace_params_with_constants"), frozen, _all_inputs, folds=True),
        Step(Site(freezing, "fx_graph_cse"), frozen, _same, adopts=True),
        Step(Site(freezing, "constant_fold"), frozen, _nothing),
        Step(Site(folding, "mark_mixed_dtype_allowed_computation_ops"), frozen, _nothing),
        Step(Site(folding, "recover_original_precision_folded_computation_ops"), frozen, _nothing),
        Step(Site(packing, "_eliminate_duplicate_packed_nodes"), frozen, _nothing),
    )


def _nothing(*_args: object, **_kwargs: object) -> None:
    """Refuse a step that works in place."""


def _same(graph: Graph | GraphModule, *_args: object) -> Graph | GraphModule:
    """Refuse a step that returns the changed graph."""
    return graph


def _all_inputs(gm: GraphModule, *_args: object) -> list[int]:
    """Refuse to make constants: every input is left."""
    return list(range(len(gm.graph.find_nodes(op="placeholder"))))
