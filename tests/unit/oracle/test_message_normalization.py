"""Messages without what changes from candidate to candidate."""

import pytest

from ctk.toolkit.oracle.questions.same_failure import normalize_message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mul_5: index 17", "mul: index 3"),
        ("at 0x7f31aa0", "at 0x55"),
        ("shape [2, 3]", "shape [7]"),
        ("expected 2x3x4", "expected 64x1"),
        ("off by 1e-05", "off by -3.5"),
        ("size s77", "size s0"),
    ],
)
def test_numbers_addresses_and_numbered_names_are_blanked_out(one: str, other: str) -> None:
    assert normalize_message(one) == normalize_message(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("float32", "float64"), ("conv2d", "conv3d"), ("no kernel", "no kernels")],
)
def test_words_stay_words(one: str, other: str) -> None:
    assert normalize_message(one) != normalize_message(other)
