"""Programs whose results share, reuse, fill in parts or change memory inside of a compiler."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers.healthy.base import Call, Healthy


def rotary_cache() -> Call:
    """Keys turned by their position, appended to an empty cache, and returned with the result."""
    queries, keys, values = (torch.randn(32, heads * 8) * 0.2 for heads in (4, 2, 2))
    rates = 1.0 / 100 ** (torch.arange(0, 8, 2) / 8)

    def turn(x: Tensor, angles: Tensor) -> Tensor:
        half = torch.cat((-x[..., 4:], x[..., :4]), -1)
        return x * angles.cos() + half * angles.sin()

    def run(x: Tensor) -> tuple[Tensor, ...]:
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * rates
        angles = torch.cat((angles, angles), -1)
        q, k, v = ((x @ w).unflatten(-1, (-1, 8)).transpose(1, 2) for w in (queries, keys, values))
        q, k = turn(q, angles), turn(k, angles)
        k, v = (torch.cat((x.new_empty(0), each), -2) for each in (k, v))
        keys_of_all, values_of_all = (each.repeat_interleave(2, 1) for each in (k, v))
        return F.scaled_dot_product_attention(q, keys_of_all, values_of_all, is_causal=True), k, v

    return run, (torch.randn(2, 16, 32),)


def joined_parts() -> Call:
    """Both parts of a concatenation and the whole are read, and returned."""

    def run(x: Tensor) -> tuple[Tensor, ...]:
        left, right = -x[:, :4], x[:, 4:].sin()
        whole = torch.cat((left, right), 1)
        return whole.cumsum(1), left + right, whole.softmax(-1)

    return run, (torch.randn(6, 8),)


def square_taken_over() -> Call:
    """The memory of a square product serves for its transpose, of the same shape."""
    weight = torch.randn(8, 8)

    def run(x: Tensor) -> tuple[Tensor, ...]:
        turned = (x @ weight).t()
        scaled = turned * 2.0 + 1.0
        return (scaled @ weight).relu(), scaled.softmax(0)

    return run, (torch.randn(8, 8),)


def indices_in_parts() -> Call:
    """Indices that are written in two parts and then read as a whole."""
    table = torch.randn(12, 5)

    def run(x: Tensor) -> tuple[Tensor, ...]:
        which = torch.cat((x.argsort(0), 11 - x.argsort(0)), 0)
        return table[which[:, 0]].cos(), which.clamp(max=3), torch.gather(table, 1, which[:12] % 5)

    return run, (torch.randn(6, 3),)


def summed_after_writes() -> Call:
    """A buffer is read, written with repeated indices, and summed."""

    def run(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        base = x * 0.5
        early = base.sum(0)
        base.index_put_((index,), x[index].exp(), accumulate=True)
        base[1:3] += early
        return base.sum(), base.sum(0), early

    return run, (torch.randn(6, 40), torch.tensor([0, 2, 2, 5, 0]))


def odd_products() -> Call:
    """Rows of odd lengths, which a compiler may pad."""
    first, second = torch.randn(33, 17), torch.randn(17, 33)

    def run(x: Tensor) -> tuple[Tensor, ...]:
        y = x @ first
        z = torch.cat((y, y.sin()), 0) @ second
        return y, z.t(), z.sum(-1), (z.t() @ z).relu()

    return run, (torch.randn(9, 33),)


def empty_tensors() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        none = x[:, x.shape[1] :]
        joined = torch.cat((none, x, x.new_empty(0)), 1)
        return none.sum(1), none.exp(), joined * 2, torch.stack((none, none)), none @ none.t()

    return run, (torch.randn(3, 4),)


def numpy_inside() -> Call:
    def run(x: Tensor) -> Tensor:
        array = x.numpy()
        return torch.from_numpy((array * 2 + array.sum(0)).T.copy()).sin()

    return run, (torch.randn(3, 4, device="cpu"),)


PROGRAMS = (
    Healthy("rotary_cache", rotary_cache),
    Healthy("joined_parts", joined_parts),
    Healthy("square_taken_over", square_taken_over),
    Healthy("indices_in_parts", indices_in_parts),
    Healthy("summed_after_writes", summed_after_writes),
    Healthy("odd_products", odd_products),
    Healthy("empty_tensors", empty_tensors),
    Healthy("numpy_inside", numpy_inside),
)
