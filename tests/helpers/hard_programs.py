"""Programs that Dynamo captures with unusual nodes: transforms, higher-order operators, odd dtypes.

Each is a function with the inputs of one call; those that are trained say so. All of them can be
kept in a case: saved, loaded and run again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as fwd
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.compiler import nested_compile_region
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, slots=True)
class Hard:
    """A program.

    Attributes:
        name: Its kind.
        function: What is compiled.
        inputs: Of one call.
        backward: It is trained.
    """

    name: str
    function: Callable[..., object]
    inputs: tuple[Any, ...]
    backward: bool = False


class Cubed(torch.autograd.Function):
    """A function with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**3 * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradients[0] * ctx.factor, None


class Rounded(torch.autograd.Function):
    """A straight-through estimator; its second result has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        more = y + 1
        ctx.mark_non_differentiable(more)
        return x.round(), more

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def _summed(x: Tensor) -> Tensor:
    return (torch.sin(x) * x).sum()


def _dual(x: Tensor, tangent: Tensor) -> object:
    with fwd.dual_level():
        return fwd.unpack_dual(fwd.make_dual(x, tangent).sin()).tangent


def _math_attention(q: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


def _deterministic(x: Tensor) -> Tensor:
    torch.use_deterministic_algorithms(True)
    y = x.cumsum(0)
    torch.use_deterministic_algorithms(False)
    return y


def _logged(x: Tensor) -> Tensor:
    torch._C._log_api_usage_once("ctk.tests")  # pyright: ignore[reportPrivateUsage]
    return x + 1


def _hooked(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return y.sum()


def _halved_saved(x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
        return x.sin() * x


def _jagged(values: Tensor, offsets: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(values, offsets).sin().values()


def _hinted(x: Tensor) -> object:
    return hints_wrapper(lambda y: y.sin(), (x,), {}, hints={"unroll": 2})


def _reduced(x: Tensor) -> Tensor:
    mask = x > 0
    return torch.masked.sum(x, 0, mask=mask) + torch.masked.softmax(x, 0, mask=mask)[0]


def _causal(score: Tensor, _b: Tensor, _h: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return torch.where(row >= column, score, -float("inf"))


def _trained(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _region(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sin()


def transforms() -> list[Hard]:
    """Return programs with functorch's transforms."""
    x, matrix, layer = torch.randn(4), torch.randn(3, 4), nn.Linear(4, 4)
    weights = dict(layer.named_parameters())
    return [
        Hard("jacfwd", lambda x: jacfwd(torch.sin)(x), (x,)),
        Hard("jacrev", lambda x: jacrev(torch.sin)(x), (x,)),
        Hard("hessian", lambda x: hessian(_summed)(x), (x,)),
        Hard("jvp", lambda x, t: jvp(_summed, (x,), (t,)), (x, x.cos())),
        Hard("vjp", lambda x, t: vjp(torch.sin, x)[1](t), (x, x.cos())),
        Hard("grad", lambda x: grad(_summed)(x), (x,)),
        Hard("grad, trained", lambda x: grad(_summed)(x) * x, (_trained(4),), backward=True),
        Hard("vmap of grad", lambda x: vmap(grad(_summed))(x), (matrix,)),
        Hard(
            "vmap of vmap", lambda x: vmap(vmap(lambda v: torch.where(v > 0, v, -v)))(x), (matrix,)
        ),
        Hard("vmap of jacfwd", lambda x: vmap(jacfwd(torch.sin))(x), (matrix,)),
        Hard(
            "grad of functional_call",
            lambda x: grad(lambda p: functional_call(layer, p, (x,)).sum())(weights),
            (matrix,),
        ),
        Hard("dual numbers", _dual, (x, x.cos())),
    ]


def higher_order() -> list[Hard]:
    """Return programs with higher-order operators."""
    x, rows, layer = torch.randn(4), torch.randn(5, 4), nn.Linear(4, 4)
    q, count = torch.randn(1, 2, 16, 8), torch.tensor(3)
    step = (lambda i, x: i > 0, lambda i, x: (i - 1, x * 1.5))
    region = nested_compile_region(_region)
    bytes_ = torch.arange(12, dtype=torch.int8)
    return [
        Hard(
            "cond",
            lambda x, p: torch.cond(p, lambda v: layer(v).sin(), lambda v: v.cos(), (x,)),
            (_trained(2, 4), torch.tensor(True)),
            backward=True,
        ),
        Hard("while_loop", lambda i, x: while_loop(*step, (i, x)), (count, x)),
        Hard("scan", lambda i, xs: scan(lambda c, v: (c + v, c * v), i, xs), (x, rows)),
        Hard(
            "associative_scan",
            lambda x: associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic"),
            (rows,),
        ),
        Hard("map", lambda xs, y: mapped(lambda v, w: v * w, xs, y), (rows, x)),
        Hard("flex_attention", lambda q: flex_attention(q, q, q, score_mod=_causal), (q,)),
        Hard(
            "checkpoint",
            lambda x: checkpoint(lambda v: F.gelu(layer(v)), x, use_reentrant=False).sum(),
            (_trained(2, 4),),
            backward=True,
        ),
        Hard("autograd.Function", lambda x: Cubed.apply(x, 3).sum(), (_trained(4),), backward=True),
        Hard(
            "straight-through estimator",
            lambda x, y: Rounded.apply(x, y)[0] * 2,
            (_trained(4), x),
            backward=True,
        ),
        Hard(
            "out_dtype",
            lambda a, b: out_dtype(torch.ops.aten.mm.default, torch.int32, a, b),
            (bytes_.view(3, 4), bytes_.view(4, 3)),
        ),
        Hard("invoke_subgraph", lambda x: region(x, x) + region(x, x * 2), (x,)),
        Hard("hints_wrapper", _hinted, (x,)),
        Hard("hook", _hooked, (_trained(4),), backward=True),
        Hard("hooks on saved tensors", _halved_saved, (_trained(4),), backward=True),
    ]


def odd_values() -> list[Hard]:
    """Return programs with modes of torch's own, and with dtypes that few programs have."""
    x, q = torch.randn(4), torch.randn(1, 2, 16, 8)
    signal = torch.randn(4, dtype=torch.complex64)
    return [
        Hard("attention kernels", _math_attention, (q,)),
        Hard("deterministic", _deterministic, (x,)),
        Hard("logged", _logged, (x,)),
        Hard("jagged inside", _jagged, (torch.randn(5, 4), torch.tensor([0, 2, 5]))),
        Hard("masked", _reduced, (torch.randn(3, 4),)),
        Hard("sparse inside", lambda x: x.relu().to_sparse() @ x, (torch.randn(3, 3),)),
        Hard("complex", lambda z: (z * (2 + 3j)).abs() + z.conj().real, (signal,)),
        Hard("infinite complex", lambda z: z + complex(1, float("inf")), (signal,)),
        Hard("lazily conjugated", lambda z: z + 1, (signal.conj(),)),
        Hard("lazily negated", lambda x: x + 1, (signal.conj().imag,)),
        Hard("float8", lambda x: x.float() * 2, (x.to(torch.float8_e4m3fn),)),
        Hard("uint16", lambda x: x.int() * 2, (torch.arange(4).to(torch.uint16),)),
        Hard("set_", _set, (x, torch.randn(4))),
        Hard("named like a module", lambda torch, X: torch + X, (x, x)),
    ]


def _set(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return x * 2


def hard_programs() -> list[Hard]:
    """Return all of them, with the same inputs each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [*transforms(), *higher_order(), *odd_values()]
