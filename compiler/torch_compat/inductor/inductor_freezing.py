"""The steps of Inductor's freezing, which have no hooks, and the tensors that it folds."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx import Graph, GraphModule

from ctk.compiler.torch_compat.inductor.inductor_api import _inductor
from ctk.compiler.torch_compat.inductor.patch_sites import Site

Step = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class FreezingStep:
    """A function that Inductor calls while it freezes a graph.

    Attributes:
        site: The place to patch; the graph is its first argument.
        refused: Its result for the caller after a veto.
        adopts: Whether it returns a new `Graph`, which its caller installs.
        folds: Whether it makes inputs constants; it returns the positions of the remaining ones.
    """

    site: Site
    refused: Step
    adopts: bool = False
    folds: bool = False

    @property
    def name(self) -> str:
        """Its name for users."""
        return self.site.name.lstrip("_")


def before_freezing() -> FreezingStep:
    """Return the step that comes before `freeze`, on CPUs where layouts are optimised."""
    return FreezingStep(
        Site(_inductor("freezing"), "convert_conv_weights_to_channels_last"), _nothing
    )


def freezing_steps() -> tuple[FreezingStep, ...]:
    """Return the steps inside of `freeze` (torch 2.11, 2.13), without pattern passes."""
    freezing, folding = _inductor("freezing"), _inductor("fx_passes.binary_folding")
    packing = _inductor("fx_passes.mkldnn_fusion")
    found = (
        FreezingStep(Site(freezing, "view_to_reshape"), _nothing),
        FreezingStep(Site(freezing, "replace_params_with_constants"), _all_inputs, folds=True),
        FreezingStep(Site(freezing, "fx_graph_cse"), _same_graph, adopts=True),
        FreezingStep(Site(freezing, "constant_fold"), _nothing),
        FreezingStep(Site(folding, "mark_mixed_dtype_allowed_computation_ops"), _nothing),
        FreezingStep(Site(folding, "recover_original_precision_folded_computation_ops"), _nothing),
        FreezingStep(Site(packing, "_eliminate_duplicate_packed_nodes"), _nothing),
    )
    return tuple(step for step in found if hasattr(step.site.owner, step.site.name))


def folded_parameters(
    names: Sequence[str], parameters: Sequence[object], kept: Sequence[int]
) -> dict[str, Tensor]:
    """Return the tensors that `replace_params_with_constants` has folded, by name of their input.

    Args:
        names: The placeholders before it ran.
        parameters: Its arguments: one per placeholder, the first ones.
        kept: Its result: the positions of the remaining placeholders.
    """
    pairs = enumerate(zip(names, parameters, strict=False))
    left = set(kept)
    return {
        name: value for i, (name, value) in pairs if i not in left and isinstance(value, Tensor)
    }


def _nothing(*_args: object, **_kwargs: object) -> None:
    """Refuse a step that works in place."""


def _same_graph(graph: Graph, *_args: object) -> Graph:
    return graph


def _all_inputs(gm: GraphModule, *_args: object) -> list[int]:
    """Refuse to make constants: every input is left."""
    return list(range(len(gm.graph.find_nodes(op="placeholder"))))
