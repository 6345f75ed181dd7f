"""What is said when a rule is registered with arguments that do not fit it."""

import pytest
import torch

from ctk.compiler.patterns.insert import fwd_only
from ctk.compiler.patterns.matcher import RuleTable
from ctk.compiler.patterns.replacement import register_replacement

X, Y = torch.randn(4, 6), torch.randn(4, 6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exclusive_arg_names": ("zz",)}, "exclusive_arg_names of the rule rule names 'zz'"),
        ({"scalar_workaround": {"zz": 2.5}}, "scalar_workaround of the rule rule names 'zz'"),
        ({"scalar_workaround": {"s": 2.5, "y": 2.5}}, "two scalars of the rule rule have one"),
        ({"scalar_workaround": {"s": 2.5, "y": 3.5}}, "has 2 example inputs for the tensor"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(options, said):
    with pytest.raises(ValueError, match=said):
        register_replacement(
            lambda x, s, y: x * s + y,
            torch.add,
            [X, Y],
            fwd_only,
            RuleTable(),
            name="rule",
            **options,
        )
