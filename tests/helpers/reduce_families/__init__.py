"""Failures of known size, by family, size and seed: what a reducer is measured and tested with.

Graphs are made of plain torch; predicates are pure and need torch only (`predicates.py`), so that
another reducer can be asked the same (`python -m benchmarks.reduce --write DIR`).
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers.reduce_families import dags, models, structures, transformers, values
from tests.helpers.reduce_families import predicates as p
from tests.helpers.reduce_families.planted import Family, Optimum, Planted

__all__ = ["FAMILIES", "Family", "Optimum", "Planted"]

Found = structures.Found
NODES = (50, 800)


def _family(
    build: Callable[[int, int], Found],
    fails: p.Predicate,
    optimum: Optimum,
    questions: int,
    *,
    sizes: tuple[int, ...] = NODES,
    small: int = 20,
) -> Family:
    def planted(size: int, seed: int) -> Planted:
        graph, inputs = build(size, seed)
        return Planted(graph, inputs, fails, optimum, questions)

    return Family(planted, sizes, small)


def _transformer(size: int, seed: int) -> Found:
    return transformers.transformer(max(2, size // transformers.NODES_A_LAYER), seed)


def _element(value: float) -> Callable[[int, int], Found]:
    return lambda size, seed: values.element(size, seed, value)


def _convolution(stride: int) -> Callable[[int, int], Found]:
    return lambda size, seed: values.convolution(size, seed, stride=stride)


def _scattered(*culprits: Callable[[Tensor], Tensor]) -> Callable[[int, int], Found]:
    return lambda size, seed: dags.scattered(size, seed, culprits)


def _equals(size: int, seed: int) -> Found:
    return structures.equals(size, seed, 30)


CULPRITS = ("relu", "gelu", "softplus")
LAYERS = tuple(transformers.NODES_A_LAYER * layers for layers in (2, 24))
ONE, TWO = Optimum(1, 1, 0), Optimum(2, 1, 0)
MODEL = (50, 400)

FAMILIES: Mapping[str, Family] = MappingProxyType({
    "one": _family(_scattered(torch.relu), p.HasOps(CULPRITS[:1]), ONE, 30),
    "one_large": _family(structures.skips, p.HasOps(("relu",)), ONE, 40, sizes=(5000, 20000)),
    "two_scattered": _family(_scattered(torch.relu, F.gelu), p.HasOps(CULPRITS[:2]), TWO, 60),
    "three_scattered": _family(
        _scattered(torch.relu, F.gelu, F.softplus), p.HasOps(CULPRITS), Optimum(3, 1, 0), 80),
    "feeding_transformer": _family(
        _transformer, p.Reaches("relu", "hardtanh"), TWO, 60, sizes=LAYERS, small=48),
    "flowing_transformer": _family(
        _transformer, p.Flows("relu", "hardtanh"), TWO, 60, sizes=LAYERS, small=48),
    "feeding_dag": _family(dags.feeding, p.Reaches("relu", "gelu"), TWO, 60),
    "flowing_dag": _family(dags.feeding, p.Flows("relu", "gelu"), TWO, 60),
    "equal_ops": _family(
        _equals, p.AtLeast("sin", 20), Optimum(20, 1, 0), 200, sizes=(30, 800), small=30),
    "equal_ops_dag": _family(
        _scattered(*([F.softplus] * 30)), p.AtLeast("softplus", 20), Optimum(20, 1, 0), 200,
        sizes=(120, 800), small=40),
    "tall": _family(values.tall, p.DimAtLeast("softmax", 0, 17), Optimum(1, 17, 0), 60),
    "large_element": _family(
        _element(123.0), p.HasElement("softmax", 100), Optimum(1, 1, 1), 80),
    "nan": _family(
        _element(math.nan), p.HasElement("softmax", math.nan), Optimum(1, 1, 1), 80),
    "element_of_many": _family(
        _element(123.0), p.HasElement("softmax", 100, 144), Optimum(1, 144, 1), 80),
    "convolution_kernel": _family(
        _convolution(2), p.StridedKernel(3, 2), Optimum(1, 10, 0), 80, sizes=(20,)),
    "convolution_image": _family(
        _convolution(1), p.BigImage(5000), Optimum(1, 5001, 0), 80, sizes=(20,)),
    "cond": _family(structures.inside_cond, p.InsideCall("cond", "relu"), Optimum(2, 2, 0), 60),
    "diamond": _family(structures.diamond, p.Diamond("relu", "minimum"), Optimum(4, 1, 0), 60),
    "in_place": _family(
        structures.in_place, p.MutatedThenRead("mul_", "gelu"), TWO, 60, small=24),
    "results": _family(
        structures.results, p.ReadsResult("split", 1, "gelu"), Optimum(3, 2, 0), 60, small=24),
    "convnet": _family(models.convnet, p.Reaches("softplus", "hardtanh"), TWO, 60, sizes=MODEL),
    "encoder": _family(models.encoder, p.Reaches("softplus", "hardtanh"), TWO, 60, sizes=MODEL),
    "decoder": _family(models.decoder, p.Reaches("softplus", "hardtanh"), TWO, 60, sizes=MODEL),
    "recurrent": _family(models.recurrent, p.Reaches("softplus", "hardtanh"), TWO, 60, sizes=MODEL),
})  # fmt: skip
"""By name."""
