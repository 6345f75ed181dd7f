"""CUDA graphs without a GPU: which graphs are refused, and what recordings give to whom."""

import ctypes
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ctk.compiler.codegen.schedule.cuda_graph_reasons import (
    device_of,
    reason_against,
    written_inputs,
)
from ctk.compiler.codegen.schedule.cuda_graphs import MOST, RECORDINGS, Recordings
from ctk.compiler.codegen.schedule.recording import RecordableGraph


class Imitation:
    """Replays a function on the CPU into the memory of its first results, as a device would."""

    def __init__(self) -> None:
        self.captures = self.replays = 0
        self.is_busy = False

    def is_capturing(self) -> bool:
        return self.is_busy

    def warm_up(self, run: Callable[[], Any]) -> Any:
        return run()

    def capture(self, run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        self.captures += 1
        results = run()
        places = [_place(each) for each in results]

        def replay() -> None:
            self.replays += 1
            again = run()
            for (address, nbytes), value in zip(places, again, strict=True):
                ctypes.memmove(address, _place(value)[0], nbytes)

        return results, replay


def _place(value: object) -> tuple[int, int]:
    if not isinstance(value, Tensor):
        return 0, 0
    storage = value.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def recordings(
    function: Callable[..., Sequence[Any]], **more: Any
) -> tuple[Callable[..., Any], Imitation]:
    """Return a function of inputs that records, past its warm-up, and its device."""
    device = Imitation()

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        return function(*given)

    made = Recordings(RecordableGraph(run, **more), "forward", device)

    def call(*inputs: Any) -> Sequence[Any]:
        args = list(inputs)
        results = made.call(args)
        assert not args  # an input dies with its last use
        return results

    return call, device


def warm(call: Callable[..., Any], *inputs: Any) -> None:
    for _ in range(2):
        call(*inputs)


def draw(*size: int) -> Tensor:
    return torch.randn(*size)


def affine(x: Tensor, weight: Tensor) -> tuple[Tensor]:
    return (x * 2 @ weight,)


def test_results_that_somebody_holds_are_not_overwritten() -> None:
    weight = nn.Parameter(draw(3, 3))
    call, device = recordings(affine)
    warm(call, draw(3, 3), weight)
    inputs = [draw(3, 3) for _ in range(RECORDINGS + 3)]
    held = [call(x, weight)[0] for x in inputs]
    for x, result in zip(inputs, held, strict=True):
        torch.testing.assert_close(result, affine(x, weight)[0])
    assert device.captures == RECORDINGS  # the last one gives copies
    assert device.replays == len(inputs)


def test_a_recording_is_free_again_when_views_and_autograd_let_go() -> None:
    weight = nn.Parameter(draw(3, 3))
    call, device = recordings(affine)
    warm(call, draw(3, 3), weight)
    first = call(draw(3, 3), weight)[0]
    view = first.t()[1:]
    scale = torch.ones(3, 3, requires_grad=True)
    used = (scale * first).sum()
    expected = first.clone()
    del first
    call(draw(3, 3), weight)
    assert device.captures == 2
    del view
    call(draw(3, 3), weight)
    used.backward()
    torch.testing.assert_close(scale.grad, expected)
    assert device.captures == 2
    del used
    for _ in range(3):
        call(draw(3, 3), weight)
    assert device.captures == 2


def test_other_parameters_are_recorded_anew() -> None:
    call, device = recordings(affine)
    x, old, new = draw(3, 3), nn.Parameter(draw(3, 3)), nn.Parameter(draw(3, 3))
    warm(call, x, old)
    for weight in (old, new, new, old):
        torch.testing.assert_close(call(x, weight)[0], affine(x, weight)[0])
    assert device.captures == 2
    with torch.no_grad():
        old.add_(1)  # as an optimizer does
    torch.testing.assert_close(call(x, old)[0], affine(x, old)[0])
    assert device.captures == 2


def test_parameters_that_always_move_end_it(caplog: pytest.LogCaptureFixture) -> None:
    call, device = recordings(affine)
    kept = [nn.Parameter(draw(3, 3)) for _ in range(MOST + 4)]
    x = draw(3, 3)
    with caplog.at_level(logging.WARNING, logger="ctk.codegen"):
        for weight in kept:
            torch.testing.assert_close(call(x, weight)[0], affine(x, weight)[0])
    assert device.captures == MOST
    assert [each.getMessage() for each in caplog.records] == [
        f"graph forward: no CUDA graph: its parameters moved, and it was recorded {MOST} times; "
        "it runs without"
    ]


def test_inputs_of_other_layouts() -> None:
    call, device = recordings(lambda x: (x + 1, x.t()))
    warm(call, draw(4, 4))
    for x in (draw(4, 4), draw(4, 4).t(), draw(4).expand(4, 4), draw(4, 8)[:, ::2], draw(4, 4)):
        plus, turned = call(x)
        torch.testing.assert_close(plus, x + 1)
        assert turned.stride() == x.t().stride()
        torch.testing.assert_close(turned, x.t())
    assert device.captures == 4


def test_results_that_are_inputs_constants_numbers_and_each_others_views() -> None:
    table = draw(3)

    def function(x: Tensor) -> tuple[Any, ...]:
        y = x * 2
        return x, x[1:], table, None, 7, y, y.t(), y.view(torch.int32), y.new_empty(0, 3)

    call, device = recordings(function, constants=(table,))
    warm(call, draw(3, 3))
    for _ in range(2 * RECORDINGS):
        x = draw(3, 3)
        held = call(x)
        whole, part, constant, nothing, seven, y, turned, bits, empty = held
        assert whole is x
        assert constant is table
        assert (nothing, seven) == (None, 7)
        assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        torch.testing.assert_close(part, x[1:])
        torch.testing.assert_close(y, x * 2)
        assert torch.equal(bits, y.view(torch.int32))
        assert empty.shape == (0, 3)
        y[0, 1] = 5  # views of one memory, of copies too
        assert turned[1, 0] == 5
    assert device.captures == 2


def test_written_inputs_are_written_back() -> None:
    def function(x: Tensor, count: Tensor) -> tuple[Tensor]:
        count.add_(1)
        return (x + count,)

    call, device = recordings(function, written=frozenset([1]))
    counts = [torch.zeros(3) for _ in range(4)]
    for turn in range(1, 4):
        for count in counts:  # never two calls with one address: copied
            x = draw(3)
            torch.testing.assert_close(call(x, count)[0], x + turn)
    assert [count[0].item() for count in counts] == [3, 3, 3, 3]
    assert device.replays == 10


def test_training_with_two_forwards_before_the_backwards() -> None:
    """What is saved lives in the memory of the forward's recording until backward has read it."""
    forward, there = recordings(lambda x, w: (torch.tanh(x @ w), x))
    backward, back = recordings(lambda y, x, g: (x.t() @ (g * (1 - y * y)),))

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            y, saved = forward(x * 1, w)
            ctx.save_for_backward(y, saved)
            return y.clone()

        @staticmethod
        def backward(ctx, gradient):
            return None, backward(*ctx.saved_tensors, gradient)[0]

    weight = nn.Parameter(draw(3, 3))
    for _ in range(6):
        inputs = [draw(3, 3) for _ in range(2)]
        results = [Layer.apply(x, weight) for x in inputs]
        expected = [torch.tanh(x @ weight) for x in inputs]
        got = torch.autograd.grad([each.square().sum() for each in results], weight)
        wanted = torch.autograd.grad([each.square().sum() for each in expected], weight)
        torch.testing.assert_close(got, wanted)
    assert there.captures <= RECORDINGS  # the imitation holds what it reads: it takes more
    assert back.captures <= RECORDINGS


def test_what_is_captured_by_others_runs_as_it_is() -> None:
    call, device = recordings(lambda x: (x + 1,))
    warm(call, draw(3))
    device.is_busy = True
    call(draw(3))
    assert (device.captures, device.replays) == (0, 0)


def test_a_capture_that_fails_is_said_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    call, device = recordings(lambda x: (x + 1,))

    def fail(run: object) -> None:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    device.capture = fail  # type: ignore[assignment]  # the device refuses
    counters["ctk"].clear()
    with caplog.at_level(logging.WARNING, logger="ctk.codegen"):
        for x in (draw(3) for _ in range(5)):
            torch.testing.assert_close(call(x)[0], x + 1)
    reason = "the capture failed: RuntimeError: operation not permitted"
    assert [each.getMessage() for each in caplog.records] == [
        f"graph forward: no CUDA graph: {reason}; it runs without"
    ]
    assert counters["ctk"] == {f"no CUDA graph: {reason}": 1}


def traced(function: Callable[..., Any], *sizes: Sequence[int]) -> GraphModule:
    """Trace a function of tensors on a device that is not there."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        return make_fx(function)(*(torch.empty(size, device="cuda") for size in sizes))


REASONS: dict[str, tuple[Callable[..., Any], str | None]] = {
    "pointwise": (lambda x: torch.relu(x) @ x, None),
    "random": (lambda x: torch.rand_like(x) + x, None),
    "written": (lambda x: x.add_(1), None),
    "view": (lambda x: x.t(), "it launches nothing"),
    "host": (lambda x: x + torch.ones(()), "ones is on the CPU"),
    "nonzero": (lambda x: torch.ops.aten.nonzero.default(x), "the size of nonzero varies"),
    "put": (
        lambda x: x.index_put((x > 0,), x.sum()),
        "index_put: it counts the true places of a mask",
    ),
    "inverse": (lambda x: torch.linalg.inv_ex(x)[0], "linalg_inv_ex: it waits for the device"),
    "second device": (
        lambda x: (x + 1, torch.ones(3, device="cuda:1") * 2),
        "it has values on cuda:0 and cuda:1",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons(name: str) -> None:
    function, expected = REASONS[name]
    gm = traced(function, (4, 4))
    assert reason_against(gm) == expected
    assert device_of(gm) == 0


def test_reasons_of_inputs() -> None:
    gm = make_fx(lambda x: x + 1)(draw(3))
    assert reason_against(gm) == "nothing of it is on a CUDA device"
    gm = traced(lambda x: x + 1, (4, 4))
    (x,) = gm.graph.find_nodes(op="placeholder")
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env):
        x.meta["val"] = torch.empty(env.create_unbacked_symint(), 4, device="cuda")
    assert reason_against(gm) == "the size of x_1 varies"


def test_written_inputs() -> None:
    gm = traced(lambda x, y: (x + 1, y.t().mul_(2)), (4, 4), (4, 4))
    assert written_inputs(gm) == {1}


def test_no_device_is_an_error_that_says_so() -> None:
    passes = {"kernels": {"cuda_graphs": True}}
    run = torch.compile(lambda x: x + 1, backend="ctk", options={"codegen": "c", "passes": passes})
    with pytest.raises(BackendCompilerFailed, match="needs a CUDA device, and torch sees none"):
        run(draw(3))
