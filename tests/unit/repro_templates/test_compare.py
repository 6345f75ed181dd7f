"""Comparison: what must pass, what must fail, and what is said of it."""

import math

import pytest
import torch

from ctk.repro_templates.numbers.compare import compare_runs, compare_values, runs_identical


def kind(eager, compiled, reference=None, **options):
    found = compare_values("out0", eager, compiled, reference, **options)
    return found.kind if found else None


def with_element(tensor, index, value):
    changed = tensor.clone()
    changed[index] = value
    return changed


# --- what must pass ---


@pytest.mark.parametrize("positive", [True, False])
def test_a_sum_in_another_order_passes(positive):
    generator = torch.Generator().manual_seed(0)
    terms = (
        torch.rand(100_000, generator=generator)
        if positive
        else torch.randn(100_000, generator=generator)
    )
    reference = terms.double().sum()
    eager = terms.sum()
    for other in (
        terms.flip(0).cumsum(0)[-1],
        terms.sort().values.sum(),
        terms.view(1000, 100).sum(0).sum(),
    ):
        assert kind(eager, other, reference) is None


def test_a_matmul_by_blocks_passes():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(128, 4096, generator=generator) for _ in range(2))
    blocks = sum(x @ y.t() for x, y in zip(a.split(64, 1), b.split(64, 1), strict=True))
    assert not torch.equal(blocks, a @ b.t())
    assert kind(a @ b.t(), blocks, a.double() @ b.double().t()) is None


def test_keeping_bfloat16_intermediates_in_float32_passes():
    x = torch.randn(512, generator=torch.Generator().manual_seed(2), dtype=torch.float32)
    low = x.bfloat16()
    eager = ((low * 1.1).exp() * 0.3).tanh() + low
    fused = ((low.float() * 1.1).exp() * 0.3).tanh().add(low.float()).bfloat16()
    reference = ((low.double() * 1.1).exp() * 0.3).tanh() + low.double()
    assert not torch.equal(eager, fused)
    assert kind(eager, fused, reference) is None


def test_a_compiled_result_nearer_to_the_truth_than_eager_passes():
    """Issue 145466: floor(cos(x)) in float16 differs, and eager is the one that is wrong."""
    x = torch.linspace(-0.02, 0.02, 1001, dtype=torch.float16)
    truth = torch.floor(torch.cos(x.double()))
    eager = torch.floor(torch.cos(x))
    assert not torch.equal(eager.double(), truth)
    assert kind(eager, truth.half(), truth) is None
    assert kind(truth.half(), eager, truth) == "accuracy"  # the other way round it is a failure


def test_equal_values_pass_whatever_they_are():
    for value in (
        torch.tensor(2.5),
        torch.empty(0, 4),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, math.nan + 1j]),
        torch.tensor([math.nan, math.inf, -math.inf, 1.0]),
        torch.tensor([2**62 + 1]),
        torch.eye(3).to_sparse(),
        3,
        2.5,
        math.nan,
        True,
        None,
        "text",
    ):
        copy = value.clone() if isinstance(value, torch.Tensor) else value
        assert kind(value, copy) is None, value


def test_an_overflow_of_eager_alone_is_no_failure():
    eager = torch.tensor([math.inf, 1.0], dtype=torch.float16)
    compiled = torch.tensor([60000.0, 1.0], dtype=torch.float16)
    assert kind(eager, compiled, torch.tensor([60000.0, 1.0], dtype=torch.float64)) is None
    assert kind(eager, compiled) == "nan"


# --- what must fail ---


@pytest.mark.parametrize("shape", [(), (1,), (1000,), (64, 64)])
def test_a_relative_error_of_a_thousandth_fails_in_float32(shape):
    reference = (
        torch.rand(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.5
    )
    eager = reference.float()
    assert kind(eager, eager * 1.001, reference) == "accuracy"
    assert kind(eager, eager * 1.001) == "accuracy"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_one_wrong_element_among_a_million_fails_and_is_named(scale):
    reference = (
        torch.randn(1000, 1000, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        * scale
    )
    eager = reference.float() * (1 + 1e-7)
    compiled = with_element(eager, (123, 456), eager[123, 456] + 0.01 * scale)
    found = compare_values("out0", eager, compiled, reference)
    assert found is not None and found.kind == "accuracy"
    assert found.worst_index == (123, 456)
    assert found.max_abs == pytest.approx(0.01 * scale, rel=1e-3)
    assert found.rms_ratio is not None and found.rms_ratio > 10
    assert "[123, 456]" in found.detail


def test_one_ill_conditioned_element_does_not_excuse_the_others():
    reference = (
        torch.rand(1000, generator=torch.Generator().manual_seed(5), dtype=torch.float64) + 1
    )
    eager = with_element(reference.float(), 0, 55.0)
    assert kind(eager, eager, reference) is None
    assert kind(eager, with_element(eager, 7, eager[7] * 1.01), reference) == "accuracy"
    assert kind(eager, with_element(eager, 0, 56.0), reference) is None


def test_wrong_small_gradients_fail():
    reference = (
        torch.randn(100, generator=torch.Generator().manual_seed(6), dtype=torch.float64) * 1e-7
    )
    assert kind(reference.float(), -reference.float(), reference) == "accuracy"


def test_a_result_of_nothing_but_noise_is_no_signal():
    reference = torch.zeros(8, dtype=torch.float64)
    assert kind(torch.zeros(8), torch.full((8,), 1e-7), reference) is None
    assert kind(torch.zeros(8), torch.full((8,), 1e-3), reference) == "accuracy"


def test_a_broken_block_where_eager_is_exact_fails():
    reference = torch.arange(100.0, dtype=torch.float64)
    eager = reference.float()
    compiled = eager.clone()
    compiled[50:] *= 1.0005
    assert kind(eager, compiled, reference) == "accuracy"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_nan_or_infinity_of_its_own_kind(value):
    eager = torch.ones(3, 3)
    compiled = with_element(eager, (1, 2), value)
    found = compare_values("out0", eager, compiled, eager.double())
    assert found is not None and found.kind == "nan" and found.worst_index == (1, 2)
    assert kind(compiled, eager, compiled.double()) == "nan"


def test_the_other_infinity_is_a_failure():
    eager = torch.tensor([math.inf])
    assert kind(eager, -eager, eager.double()) == "nan"


def test_numbers_beside_a_nan_still_count():
    eager = torch.tensor([math.nan, 1.0, 2.0])
    assert kind(eager, torch.tensor([math.nan, 1.0, 2.1]), eager.double()) == "accuracy"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool])
def test_integers_and_bools_are_exact(dtype):
    eager = torch.ones(10, dtype=dtype)
    found = compare_values("out0", eager, with_element(eager, 4, 0), eager.double())
    assert found is not None and found.kind == "accuracy" and found.worst_index == (4,)


def test_large_integers_differ_by_one():
    assert kind(torch.tensor([2**62]), torch.tensor([2**62 + 1])) == "accuracy"


def test_mistakes_of_eager_are_counted_in_integers_too():
    truth = torch.arange(100)
    eager = with_element(truth, 0, 1)
    assert kind(eager, with_element(truth, 1, 2), truth) is None
    assert kind(eager, with_element(truth, 1, 90), truth) == "accuracy"
    assert kind(eager, truth + 1, truth) == "accuracy"


def test_complex_numbers_are_compared_by_part():
    eager = torch.complex(torch.ones(4), torch.full((4,), 2.0))
    assert kind(eager, eager.conj(), eager.to(torch.complex128)) == "accuracy"
    assert kind(eager, eager * (1 + 1e-7), eager.to(torch.complex128)) is None


@pytest.mark.parametrize(
    ("eager", "compiled", "expected"),
    [
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype"),
        (torch.ones(2), torch.ones(2, 1), "shape"),
        (torch.ones(0, 2), torch.ones(0, 3), "shape"),
        (torch.ones(()), 1.0, "structure"),
        (1.0, torch.ones(()), "structure"),
        (None, torch.ones(1), "structure"),
        (torch.ones(1), None, "structure"),
        (1, True, "structure"),
        (1, 1.0, "structure"),
        (1, 2, "accuracy"),
        (1.0, 1.01, "accuracy"),
        (1.0, 1.0 + 1e-7, None),
        (1.0, math.nan, "nan"),
        (1 + 1j, 1 - 1j, "accuracy"),
        (torch.eye(2).to_sparse(), torch.eye(2), "structure"),
        (torch.eye(2).to_sparse(), (torch.eye(2) * 2).to_sparse(), "accuracy"),
    ],
)
def test_each_difference_has_its_kind(eager, compiled, expected):
    assert kind(eager, compiled) == expected


@pytest.mark.parametrize(
    "eager, compiled, kinds",
    [
        (torch.tensor([127], dtype=torch.int8), torch.tensor([-129]), ["dtype", "accuracy"]),
        (torch.tensor([127], dtype=torch.int8), torch.tensor([127]), ["dtype"]),
        (torch.tensor([0.1]), torch.tensor([0.1], dtype=torch.float64), ["dtype"]),
        (torch.tensor([0.1]), torch.tensor([0.2], dtype=torch.float64), ["dtype", "accuracy"]),
        (torch.tensor([0.1]), torch.tensor([0.1], dtype=torch.bfloat16), ["dtype"]),
        (torch.tensor([1.0]), torch.tensor([math.nan]).double(), ["dtype", "nan"]),
        (torch.ones(2), torch.zeros(3, dtype=torch.int64), ["dtype"]),
    ],
)
def test_numbers_of_another_dtype_may_be_wrong_too(eager, compiled, kinds):
    found = compare_runs({"out0": eager}, {"out0": compiled})
    assert [mismatch.kind for mismatch in found] == kinds


def test_strides_are_no_value():
    assert kind(torch.ones(4, 3), torch.ones(3, 4).t()) is None


# --- whole runs ---


def test_every_mismatch_of_a_run_is_listed_in_order():
    eager = {"out0": torch.ones(2), "out1": torch.ones(2), "in0": torch.ones(2)}
    compiled = {"out0": torch.ones(2), "out1": torch.ones(3), "in0": torch.zeros(2)}
    found = compare_runs(eager, compiled, eager)
    assert [(m.name, m.kind) for m in found] == [("out1", "shape"), ("in0", "accuracy")]


def test_another_number_of_results_is_a_structure():
    eager, compiled = {"out0": 1, "out1": 2}, {"out0": 1}
    (found,) = compare_runs(eager, compiled)
    assert (found.kind, found.name, found.detail) == ("structure", "out1", "missing out1")
    (found,) = compare_runs(compiled, eager)
    assert found.detail == "unexpected out1"


def test_identical_means_bit_for_bit():
    ones = {"out0": torch.ones(2), "out1": 3}
    assert runs_identical(ones, {"out0": torch.ones(2), "out1": 3})
    assert not runs_identical(ones, {"out0": torch.ones(2) + 1e-7, "out1": 3})
    assert not runs_identical(ones, {"out0": torch.ones(2).double(), "out1": 3})
    assert not runs_identical(ones, {"out0": torch.ones(2), "out1": 3.0})
    assert not runs_identical(ones, {"out0": torch.ones(2)})
