"""Kernels that compile in a thread, while their graph runs in eager."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.base import BoxedCallable
from ctk.compiler.codegen.c.c_codegen import CODEGEN, GENERATOR
from ctk.compiler.codegen.kernels import KernelContext
from ctk.compiler.codegen.schedule.compilation import THREAD, compile_with
from ctk.compiler.errors import ArtifactError
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.toolkit.compile_log.recorder import Recorder

X = torch.randn(5, 7)
CONFIG = Config(codegen="c", passes={"kernels": {"background": True}})


def program(x: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(x, 1)
    return weights @ x.t(), weights.sum(0)


def compiled(before: Callable[[], object], recorder: Recorder | None = None) -> BoxedCallable:
    """Compile the program; its kernels call `before` first."""

    def compile_kernels(*args):
        before()
        return GENERATOR.compile_kernels(*args)

    generator = replace(GENERATOR, compile_kernels=compile_kernels)
    context = KernelContext(CODEGEN, "forward", Numbering(recorder, CONFIG))
    return compile_with(generator)(make_fx(program, tracing_mode="fake")(X), [X], context)


def check(run: BoxedCallable) -> None:
    for value, expected in zip(run([X]), program(X), strict=True):
        torch.testing.assert_close(value, expected)


def finish() -> None:
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()


def test_the_graph_runs_in_eager_until_its_kernels_are_there() -> None:
    gate = threading.Event()
    run = compiled(gate.wait)
    try:
        early = run([X])
    finally:
        gate.set()
    assert all(map(torch.equal, early, program(X)))  # the bits of eager
    finish()
    check(run)
    assert "_ctk_launch_0(" in run.ctk_source()


def test_a_failure_is_logged_once_and_the_graph_stays_in_eager(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ArithmeticError("no such\nthing")

    with caplog.at_level(logging.WARNING, logger="ctk.codegen"):
        run = compiled(fail)
        finish()
        check(run)
        check(run)
    (record,) = caplog.records
    assert record.getMessage() == (
        "graph forward: no kernels: ArithmeticError: no such; it stays in eager"
    )


def test_who_watches_waits_for_the_kernels() -> None:
    threads: list[str] = []
    run = compiled(lambda: threads.append(threading.current_thread().name), Recorder())
    assert threads == [threading.current_thread().name]
    check(run)


def test_it_says_why_it_cannot_be_stored() -> None:
    run = compiled(lambda: None)
    with pytest.raises(ArtifactError, match=r"kernels\.background=true"):
        run.ctk_data()
