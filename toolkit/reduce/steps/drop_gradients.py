"""Make plain inputs of parameters, and of inputs that require gradients, as far as possible."""

import torch

from ctk.compiler.fx.walk import input_names
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.form_edits import DropGradients
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to make plain tensors of any inputs that are more."""
    pairs = zip(input_names(case.graph), case.inputs, strict=True)
    names = tuple(name for name, value in pairs if _is_more(value))
    return [Subset(DropGradients, names)] if names else []


def _is_more(value: object) -> bool:
    return isinstance(value, torch.nn.Parameter) or (
        isinstance(value, torch.Tensor) and value.requires_grad
    )


STEP = Step("drop_gradients", propose, detail="gradients")
