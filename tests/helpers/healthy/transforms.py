"""torch.func: vmap, grad, jacobians, hessians, per-sample gradients, functional calls."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from tests.helpers.healthy.base import Call, Healthy


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def batched_dot() -> Call:
    return lambda a, b: vmap(torch.dot)(a, b), (torch.randn(5, 4), torch.randn(5, 4))


def nested_vmap() -> Call:
    outer = vmap(vmap(lambda x, y: x * y.sum(), in_dims=(0, None)), in_dims=(None, 0))
    return lambda a, b: outer(a, b), (torch.randn(3), torch.randn(2, 4))


def vmap_mask() -> Call:
    """A mask built from indices inside vmap, as Hugging Face models do."""

    def mask(x: Tensor) -> Tensor:
        n = x.shape[-1]
        at = torch.arange(n, device=x.device)
        causal = vmap(vmap(lambda q, k: k <= q, (None, 0)), (0, None))(at, at)
        return torch.where(causal, x, float("-inf")).softmax(-1)

    return mask, (torch.randn(2, 5, 5),)


def per_sample_gradients() -> Call:
    model = net()
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).square().sum()

    return lambda x: vmap(grad(loss), (None, 0))(weights, x), (torch.randn(5, 4),)


def forward_jacobian() -> Call:
    return lambda x: jacfwd(lambda y: y.sin() * y.sum())(x), (torch.randn(4),)


def reverse_jacobian() -> Call:
    return lambda x: jacrev(lambda y: (y.cos() * y.prod(),))(x), (torch.randn(4),)


def second_order() -> Call:
    return lambda x: hessian(lambda y: y.pow(3).sum() + y.prod())(x), (torch.randn(3),)


def forward_mode() -> Call:
    return lambda x, t: jvp(lambda y: y.exp().sum(0), (x,), (t,)), (
        torch.randn(3, 2),
        torch.randn(3, 2),
    )


def reverse_mode() -> Call:
    def both(x: Tensor, ct: Tensor) -> object:
        value, pull = vjp(lambda y: y.sigmoid() @ y.T, x)
        return value, pull(ct)

    return both, (torch.randn(3, 3), torch.randn(3, 3))


def grad_and_aux() -> Call:
    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.square().sum(), x.sin()

    return lambda x: grad(loss, has_aux=True)(x), (torch.randn(4),)


def ensemble() -> Call:
    models = [net() for _ in range(3)]
    weights, buffers = torch.func.stack_module_state(models)
    weights = {name: value.detach() for name, value in weights.items()}
    base = net()

    def run(x: Tensor) -> Tensor:
        return vmap(lambda w, b: functional_call(base, (w, b), (x,)))(weights, buffers)

    return run, (torch.randn(2, 4),)


PROGRAMS = (
    Healthy("batched_dot", batched_dot),
    Healthy("nested_vmap", nested_vmap),
    Healthy("vmap_mask", vmap_mask),
    Healthy("per_sample_gradients", per_sample_gradients),
    Healthy("forward_jacobian", forward_jacobian),
    Healthy("reverse_jacobian", reverse_jacobian),
    Healthy("second_order", second_order),
    Healthy("forward_mode", forward_mode),
    Healthy("reverse_mode", reverse_mode),
    Healthy("grad_and_aux", grad_and_aux),
    Healthy("ensemble", ensemble),
)
