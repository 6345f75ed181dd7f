"""Watched calls: which is recorded, what is kept of its inputs, who is named when it raises.

The code generators of ctk and the adapters of other compilers share this.
"""

import pytest
import torch
from torch.fx import symbolic_trace

from ctk.compiler.codegen.watch_calls import WatchedGraph, watch_calls
from ctk.compiler.observe import KernelId
from ctk.toolkit.compile_log.recorder import Recorder

FORWARD = KernelId("theirs", "forward")


def watched(call, *kernels: KernelId, donated=frozenset()):
    recorder = Recorder(keep_calls=True)
    graph = symbolic_trace(lambda x: x.sin())
    return recorder, watch_calls(call, WatchedGraph(recorder, "forward", graph, kernels, donated))


def test_the_first_call_that_returns_is_recorded() -> None:
    fails = [True, True]

    def call(args):
        if fails and fails.pop():
            raise ArithmeticError("not yet")
        return (args[0] + 1,)

    recorder, run = watched(call, FORWARD)
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            run([torch.zeros(1)])
    assert not recorder.log.calls()
    run([torch.ones(1)])
    run([torch.full((1,), 5.0)])
    (record,) = recorder.log.calls()
    assert (record.outputs[0].item(), record.inputs[0].item()) == (2.0, 1.0)
    assert [kernel.id for kernel in record.kernels] == [FORWARD]
    assert len(recorder.log.errors()) == 2


def test_what_becomes_of_donated_inputs_is_not_shown() -> None:
    def call(args):
        for each in args:
            each.fill_(9.0)
        return ()

    recorder, run = watched(call, donated=frozenset({1}))
    run([torch.zeros(1), torch.zeros(1)])
    (record,) = recorder.log.calls()
    assert [value.item() for value in record.inputs_after] == [9.0, 0.0]


def test_inputs_that_share_memory_share_it_in_the_record() -> None:
    recorder, run = watched(lambda args: ())
    base = torch.arange(4.0)
    run([base, base[1:]])
    (record,) = recorder.log.calls()
    whole, part = record.inputs
    assert part.data_ptr() == whole.data_ptr() + whole.element_size()


def raise_error(args):
    raise ArithmeticError("a bug")


@pytest.mark.parametrize(
    ("kernels", "where"),
    [
        ((FORWARD,), "lowered/theirs:forward"),
        ((FORWARD, KernelId("theirs", "more")), "lowered/theirs:forward"),
        ((), "forward"),
    ],
)
def test_an_exception_says_where_it_was_raised(kernels, where) -> None:
    recorder, run = watched(raise_error, *kernels)
    with pytest.raises(ArithmeticError) as caught:
        run([])
    assert caught.value.ctk_where == where
    (error,) = recorder.log.errors()
    assert error.kernel == (FORWARD if len(kernels) == 1 else None)
