"""What is logged of a graph: who compiles it and why, and what the library runs."""

import logging

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.select import generate
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering

X = torch.randn(5, 7)


def program(x: Tensor) -> Tensor:
    return (x.sort()[0] @ x.t()).view(-1).sin() @ torch.ones(25) + (x.cos() @ x.t()).sum()


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return the log of the graph, without the notice on torch.jit that a process logs once."""
    graph = make_fx(program, tracing_mode="fake")(X)
    caplog.set_level(level, logger="ctk.codegen")
    found = generate(graph, [X], "forward", Numbering(None, Config()))([X])
    torch.testing.assert_close(found, program(X))
    logged = [each.getMessage() for each in caplog.records if each.name == "ctk.codegen"]
    return [line for line in logged if " torch.jit" not in line]


def test_library_calls_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = lines(caplog, logging.DEBUG)
    assert line.startswith("graph forward: ")
    assert " library calls: " in line
    assert "sort (" in line
    assert "2 x mm (" in line
    assert "view" not in line


def test_without_a_compiler_one_line_says_who_takes_the_graph(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    (line,) = lines(caplog, logging.INFO)
    assert line == (
        "graph forward: c refuses it: no C compiler found "
        "(looked for cc, gcc, clang); torchscript takes it"
    )
