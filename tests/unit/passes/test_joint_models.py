"""Joint passes at work in training programs, forward and backward, against eager."""

import pytest
import torch

from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder


def trained(function, *inputs, dynamic=False, **config):
    """Run a compiled function and eager from one seed, with gradients; return both and the log."""
    torch._dynamo.reset()
    recorder = Recorder()

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, {**config, "codegen": "eager"}, recorder)

    found = []
    for run in (torch.compile(function, backend=backend, dynamic=dynamic), function):
        given = [each.detach().clone().requires_grad_(each.is_floating_point()) for each in inputs]
        torch.manual_seed(3)
        result = run(*given)
        result.square().sum().backward()
        found.append((result.detach(), *(each.grad for each in given)))
    return *found, recorder.log


def rewrites(log, step):
    return [each.id.rule for r in log.passes() if r.id.name == step for each in r.rewrites]


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_at_a_permutation_are_stored_in_forward_and_backward(dynamic):
    def program(x, y):
        order = torch.randperm(x.shape[0])
        added = torch.index_add(x.sin(), 0, order[: y.shape[0]], y.exp())
        return added[order] * added.index_select(0, order)

    compiled, eager, log = trained(program, torch.randn(6, 3), torch.randn(4, 3), dynamic=dynamic)
    torch.testing.assert_close(compiled, eager, rtol=0, atol=0)
    assert len(rewrites(log, "store_unique_indices")) == 3
