"""Numbers that TorchScript must not know, as attributes that stay when the module is frozen.

With a number that it knows it simplifies: it splits `addmm`, drops `x + 0`, takes 0.0 for -0.0.
"""

from collections.abc import Mapping

ONE = "ctk_unit"
NUMBERS: Mapping[str, int | float] = {
    "ctk_zero": 0,
    "ctk_zero_float": 0.0,
    "ctk_negative_zero": -0.0,
    ONE: 1,
    "ctk_unit_float": 1.0,
}
"""What each attribute holds."""
