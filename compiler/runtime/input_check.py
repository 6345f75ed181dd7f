"""The inputs of a graph made to fit its kernels, all in one check.

    if _ctk_fits(x, w):                   one call of C for all inputs, as Dynamo checks its guards
        x_fitted, w_fitted = x, w
    else:                                 each by `fitted` or `required`, which copy or refuse
        x_fitted, w_fitted = _ctk_fit(x, w)

The check is made of tensors that fit as they are. It compares more than is needed: tensors of
another type, or with gradients, fail it although they fit, and a new check is made of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor

from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.runtime.steps import Call, Schedule, map_leaves, names_read, symbols_read
from ctk.compiler.sizes.index import Index
from ctk.compiler.torch_compat.process import strided_tensors

_CHECKS = 8
"""Limit of the checks that are made for one graph: with more kinds of calls none pays off."""


def input_fits(schedule: Schedule) -> Mapping[str, Call]:
    """Return the steps that fit inputs of fixed sizes, by their names.

    Steps after a call that got the input are not among them, as it may have changed its layout.
    """
    waiting = set(schedule.inputs)
    found: dict[str, Call] = {}
    for step in schedule.steps:
        if not isinstance(step, Call):
            continue
        if step.function not in (fitted, required):
            waiting.difference_update(names_read(step))
        elif names_read(step)[0] in waiting and not symbols_read(step):
            found[step.name] = step
    return found


class InputCheck:
    """The check of a graph's inputs, and what to do if it fails.

    Args:
        steps: The steps of `input_fits`.
        scope: The globals of the graph's function, in which `_ctk_fits` is the check.
    """

    def __init__(self, steps: Sequence[Call], scope: dict[str, Any]) -> None:
        self._fits = [(step.function, tuple(map(_plain, step.args[1:]))) for step in steps]
        self._left = _CHECKS
        self._scope = scope
        scope.update(_ctk_fits=_never, _ctk_fit=self.fit)

    def fit(self, *tensors: Tensor) -> list[Tensor]:
        """Return tensors that fit, in the order of the steps; the given ones where they do."""
        pairs = zip(tensors, self._fits, strict=True)
        found = [cast("Tensor", make(tensor, *wanted)) for tensor, (make, wanted) in pairs]
        if self._left >= 0 and all(map(_is_same, found, tensors)):
            self._left -= 1
            check = strided_tensors.same_layouts(tensors) if self._left >= 0 else _never
            self._scope["_ctk_fits"] = check
        return found


def _plain(argument: Any) -> Any:
    """Return an argument with its sizes as numbers."""
    return map_leaves(argument, lambda leaf: leaf.number if isinstance(leaf, Index) else leaf)


def _is_same(one: object, other: object) -> bool:
    return one is other


def _never(*_: Tensor) -> bool:
    return False
