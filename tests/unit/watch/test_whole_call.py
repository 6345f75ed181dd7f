"""Calls compared end to end: what Dynamo does wrong is seen though each graph is right."""

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.progress import BarColumn as Column
from torch._inductor.async_compile import AsyncCompile

from ctk.compiler.errors import MiscompileError
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.watch.hooks import debug_compile, install
from ctk.toolkit.watch.process_fork import Keeper


def truncated(x):
    return torch.from_numpy(np.fix(x.numpy() * 0.6))  # Dynamo rounds (torch 2.13)


class Wrapped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sub = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.sub(x)


SEEN = []


def noting(x):
    SEEN.append(len(SEEN))
    return x.add_(1)


def watching(folder, **options):
    return install(dump=folder, check="output", **{"on_failure": "warn", **options})


def test_a_wrong_capture_is_a_failure(tmp_path):
    with watching(tmp_path) as hooks:
        torch.compile(truncated, backend="eager")(torch.tensor([1.0, 2.0, 3.0]))
    (failure,) = hooks.session.failures
    assert failure.summary.startswith("accuracy at call1.out0")
    assert "layer dynamo (capture), test_whole_call.py:21" in failure.summary
    assert '"layer": "dynamo"' in failure.folder.read_text()


def test_it_raises_when_that_is_asked_for(tmp_path):
    with watching(tmp_path, on_failure="raise"), pytest.raises(MiscompileError, match="capture"):
        torch.compile(truncated, backend="eager")(torch.tensor([1.0, 2.0, 3.0]))


def test_a_missing_guard_shows_at_the_second_call_when_that_is_looked_at(tmp_path):
    for calls in (1, 2):
        torch.compiler.reset()
        model, x = Wrapped(), torch.ones(2, 4)
        with watching(tmp_path, calls=calls) as hooks:
            compiled = torch.compile(model, backend="eager")
            compiled(x)
            object.__setattr__(model, "sub", torch.nn.Linear(4, 4))
            compiled(x)
        assert len(hooks.session.failures) == calls - 1
    assert "layer dynamo (guards)" in hooks.session.failures[0].summary


def test_the_program_notices_nothing(tmp_path):
    SEEN.clear()
    x = torch.zeros(3)
    with watching(tmp_path, calls=3) as hooks:
        compiled = torch.compile(noting, backend="aot_eager")
        torch.manual_seed(3)
        assert compiled(x) is x
        assert compiled.__name__ == "noting"
        compiled(x)
        drawn = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(2))
    assert SEEN == [0, 1] and torch.equal(x, torch.full((3,), 2.0))
    assert hooks.session.failures == []


def test_files_that_are_open_get_nothing_twice(tmp_path):
    path = tmp_path / "log"
    with path.open("w") as log, watching(tmp_path / "dumps"):

        def program(x):
            log.write("called\n")
            log.flush()
            return x + 1

        torch.compile(program, backend="eager")(torch.ones(2))
    assert path.read_text() == "called\n"


def test_a_gradient_flows_through_a_call_that_was_compared(tmp_path):
    x = torch.ones(2, 4, requires_grad=True)
    with watching(tmp_path) as hooks:
        torch.compile(Wrapped(), backend="aot_eager")(x).sum().backward()
    assert x.grad is not None and hooks.session.failures == []


def test_a_call_inside_of_a_compared_call_is_not_compared_once_more(tmp_path, monkeypatch):
    copies = []
    start = Keeper.start
    monkeypatch.setattr(Keeper, "start", lambda play: copies.append(play) or start(play))
    with watching(tmp_path) as hooks:
        inner = torch.compile(lambda x: x + 1, backend="eager")

        @torch.compiler.disable
        def apart(x):
            return inner(x)

        outer = torch.compile(lambda x: apart(x) * 2, backend="eager")
        assert torch.equal(outer(torch.ones(2)), torch.full((2,), 4.0))
    assert len(copies) == 1 and hooks.session.failures == []


def test_a_copy_that_ends_proves_nothing(tmp_path, monkeypatch):
    asked = Keeper.ask

    def died(keeper, way, *variation):
        return {"died": "timeout not done"} if way == "fresh" else asked(keeper, way, *variation)

    monkeypatch.setattr(Keeper, "ask", died)
    model, x = Wrapped(), torch.ones(2, 4)
    with watching(tmp_path, calls=2) as hooks:
        compiled = torch.compile(model, backend="eager")
        compiled(x)
        object.__setattr__(model, "sub", torch.nn.Linear(4, 4))
        compiled(x)
    assert hooks.session.failures == []


def test_a_program_that_waits_for_no_children_is_compared_too(tmp_path):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with watching(tmp_path) as hooks:
            torch.compile(Wrapped(), backend="eager")(torch.ones(2, 4))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert hooks.session.failures == [] and not hooks.session.calls.by_graph


class Unreadable(Mapping):
    def __getitem__(self, key):
        raise OSError(key)

    def __iter__(self):
        return iter("a")

    def __len__(self):
        return 1


def test_state_that_cannot_be_read_is_not_the_programs_trouble(tmp_path):
    model = Wrapped()
    model.table = Unreadable()
    with watching(tmp_path) as hooks:
        torch.compile(model, backend="eager")(torch.ones(2, 4))
    assert hooks.session.failures == []
    assert dict(hooks.session.calls.by_graph) == {"its state cannot be read": 1}


def test_an_exception_of_the_program_is_its_own(tmp_path):
    def program(x):
        raise ValueError("mine")

    with watching(tmp_path) as hooks, pytest.raises(ValueError, match="mine"):
        torch.compile(program, backend="eager")(torch.ones(2))
    assert hooks.session.failures == []


def test_what_cannot_be_compared_is_told(tmp_path):
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        with watching(tmp_path) as hooks:
            torch.compile(truncated, backend="eager")(torch.tensor([1.0, 2.0, 3.0]))
    finally:
        end.set()
        other.join()
    assert hooks.session.failures == []
    threads = "a process with several threads cannot be forked"
    assert dict(hooks.session.calls.by_graph) == {threads: 1}


def test_threads_that_inductor_keeps_for_compiles_are_in_nobodys_way(tmp_path):
    with torch._inductor.config.patch(compile_threads=2):
        AsyncCompile.submit(lambda: None).result()
        assert inductor.compiler_threads()
        with watching(tmp_path) as hooks:
            torch.compile(truncated, backend="eager")(torch.tensor([1.0, 2.0, 3.0]))
        assert len(hooks.session.failures) == 1
        assert torch._inductor.config.compile_threads == 2


def test_debug_compile_compares_calls_too(tmp_path: Path):
    backend = debug_compile("eager", check="output", dump=tmp_path)
    with pytest.raises(MiscompileError, match=r"dynamo \(capture\)"):
        torch.compile(truncated, backend=backend)(torch.tensor([1.0, 2.0, 3.0]))


def test_without_a_check_nothing_is_compared(tmp_path):
    with install(dump=tmp_path, check="off") as hooks:
        torch.compile(truncated, backend="eager")(torch.tensor([1.0, 2.0, 3.0]))
    assert hooks.session.failures == []


class Configured(torch.nn.Module):
    """Holds the environment, and an object of an installed package."""

    def __init__(self) -> None:
        super().__init__()
        self.environment, self.bar = os.environ, Column()

    def forward(self, x):
        return x + 1


def changes_the_process(gm, example_inputs):
    os.environ["CTK_TEST_OF_A_COMPILER"] = "1"
    Column.made_by_a_compiler = True
    return gm.forward


def test_the_environment_and_classes_of_packages_are_not_state_of_a_program(tmp_path, monkeypatch):
    monkeypatch.setenv("CTK_TEST_OF_A_COMPILER", "0")
    monkeypatch.setattr(Column, "made_by_a_compiler", False, raising=False)
    with watching(tmp_path) as hooks:
        torch.compile(Configured(), backend=changes_the_process)(torch.ones(2))
    assert hooks.session.failures == []
    assert (hooks.session.calls.whole, dict(hooks.session.calls.by_graph)) == (1, {})


def test_a_rank_of_a_group_is_compared_graph_by_graph(tmp_path):
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with watching(tmp_path) as hooks:
            torch.compile(truncated, backend="eager")(torch.tensor([1.0, 2.0, 3.0]))
    finally:
        torch.distributed.destroy_process_group()
    assert hooks.session.failures == []
    group = "a rank of a process group cannot be forked"
    assert dict(hooks.session.calls.by_graph) == {group: 1}
