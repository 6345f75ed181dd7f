"""Kernels that compile in threads end with their compile, also with one that fails."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock

import pytest
import torch
from torch import Tensor

from ctk.compiler.codegen.deferral import can_defer, defer, deferred
from ctk.compiler.codegen.triton import triton_codegen
from ctk.compiler.codegen.triton.variants import Variants
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.pipeline import Compile

pytest.importorskip("triton")

OPTIONS = {
    "codegen": "triton",
    "on_failure": "raise",
    "cache": False,
    "passes": {"triton": {"interpret": True}},
}


def layers(x: Tensor, weight: Tensor) -> Tensor:
    """Return a result of several kernels, forward and backward."""
    for _ in range(4):
        x = (x.sin() @ weight).softmax(-1)
    return x.sum()


def compiled(program: Callable[..., Tensor]) -> Tensor:
    torch._dynamo.reset()
    x = torch.randn(4, 4, requires_grad=True)
    return torch.compile(program, backend="ctk", options=OPTIONS)(x, torch.randn(4, 4))


class Kernels:
    """The kernels of a compile, in the place of `Variants.prepare`.

    The kernel `wrong` raises. If the compile fails elsewhere, the first one waits for that.
    """

    def __init__(
        self,
        wrong: int | None = None,
        error: type[BaseException] = ValueError,
        seconds: float = 0.2,
    ) -> None:
        self.begun, self.ended = 0, 0
        self.failed = threading.Event()
        self._wrong, self._error, self._seconds = wrong, error, seconds

    def prepare(self, _: Variants) -> None:
        number = self.begun
        self.begun += 1
        try:
            if number == self._wrong:
                self.failed.set()
                raise self._error("a kernel failed")
            if number == 0 and self._wrong is None:
                self.failed.wait(60)
            time.sleep(self._seconds)
        finally:
            self.ended += 1


@contextmanager
def kernels(made: Kernels) -> Iterator[None]:
    with mock.patch.object(Variants, "prepare", lambda variants: made.prepare(variants)):
        yield
    assert made.begun == made.ended, "a kernel compiles behind its compile"
    threads = [each for each in threading.enumerate() if each.name.startswith("ctk-triton")]
    for each in threads:
        each.join(10)
    assert made.begun == made.ended, "a kernel began behind its compile"


def count() -> int:
    made = Kernels(seconds=0)
    made.failed.set()
    with kernels(made):
        compiled(layers)
    return made.begun


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_kernel_that_fails_cancels_the_others(error: type[BaseException]) -> None:
    total = count()
    assert total > 4
    made = Kernels(1, error)
    with kernels(made), pytest.raises(BaseException, match="a kernel failed") as raised:
        compiled(layers)
    assert isinstance(raised.value, KeyboardInterrupt) == (error is KeyboardInterrupt)
    assert made.begun < total


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_pipeline_that_fails_afterwards_cancels_them(error: type[BaseException]) -> None:
    made = Kernels()
    forward = Compile.forward

    def fail(self: Compile, *args: Any) -> NoReturn:
        forward(self, *args)
        made.failed.set()
        raise error("a later stage failed")

    with (
        kernels(made),
        mock.patch.object(Compile, "forward", fail),
        pytest.raises(BaseException, match="a later stage failed") as raised,
    ):
        compiled(layers)
    assert isinstance(raised.value, KeyboardInterrupt) == (error is KeyboardInterrupt)
    assert 0 < made.begun < count()


def test_an_interrupt_while_it_waits_for_kernels() -> None:
    made = Kernels()

    def interrupt(begun: object) -> float:
        made.failed.set()
        raise KeyboardInterrupt

    with (
        kernels(made),
        mock.patch.object(triton_codegen, "_wait", interrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        compiled(layers)
    assert 0 < made.begun < count()


def test_a_graph_that_another_generator_takes_leaves_no_kernels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Kernels()

    def refuse(*args: object) -> NoReturn:
        made.failed.set()
        raise CodegenUnsupported("planted")

    place = "ctk.compiler.codegen.schedule.compilation.PythonCode"
    with kernels(made), mock.patch(place, refuse):
        compiled(layers)
    assert "triton refuses it: planted" in caplog.text
    assert 0 < made.begun < count()


def test_what_is_deferred_is_called_at_the_end_once() -> None:
    called: list[int] = []
    assert not can_defer()
    with deferred(enabled=True):
        assert can_defer()
        defer(lambda: called.append(1), [])
        with deferred(enabled=False):
            assert not can_defer()
        assert not called
    assert called == [1]
    assert not can_defer()
    with pytest.raises(ArithmeticError), deferred(enabled=True):
        defer(lambda: called.append(2), [])
        raise ArithmeticError
    assert called == [1]
