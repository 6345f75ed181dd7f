"""Programs with threads and asyncio that compile at the same time, under `ctk run`."""

import dataclasses
import threading
from pathlib import Path

import pytest
import torch

from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.graph.running import STATES, under
from ctk.toolkit.case.case import Modes
from ctk.toolkit.execution.modes import reference_state
from ctk.toolkit.watch.first_call import hold_compile_lock
from ctk.toolkit.watch.hooks import debug_compile, install
from tests.helpers.faulty_backends import run_python
from tests.helpers.threaded_programs import PROGRAMS

CTK = ("-c", "from ctk.toolkit.cli.main import main; main()")


def watched(script: Path, backends: str, *options: str):
    out = script.parent / "dumps"
    return run_python(*CTK, "run", "--out", out, *options, script, backends)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.slow if place else ())
        for place, each in enumerate(PROGRAMS)
    ],
)
def test_threads_compile_at_the_same_time(tmp_path: Path, name: str):
    script = tmp_path / f"{name}.py"
    script.write_text(PROGRAMS[name])
    done = watched(script, "ctk,aot_eager", "--check", "pass")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("no failure: ")
    # Unwatched, torch may register the entry point twice (docs/limitations.md).
    script.write_text(
        "import torch._dynamo\ntorch._dynamo.lookup_backend('ctk')\n" + PROGRAMS[name]
    )
    plain = run_python(script, "ctk,aot_eager")
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout and plain.stdout in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("check", ["off", "output", "pass"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_twenty_times(tmp_path: Path, name: str, check: str):
    script = tmp_path / f"{name}.py"
    script.write_text(PROGRAMS[name])
    answers = [watched(script, "ctk,inductor,aot_eager", "--check", check) for _ in range(20)]
    assert [each.returncode for each in answers] == [0] * 20, answers


def test_an_entry_point_may_be_registered_twice(tmp_path: Path):
    """What two threads do that look up a backend for the first time."""
    from torch._dynamo.backends import registry

    backend = dynamo.find_backend("ctk")
    with install(dump=tmp_path):
        assert registry.register_backend(backend, "ctk") is backend
        with pytest.raises(AssertionError, match="duplicate name: ctk"):
            registry.register_backend(lambda gm, inputs: gm, "ctk")
    with pytest.raises(AssertionError, match="duplicate name: ctk"):
        registry.register_backend(backend, "ctk")


def test_a_module_registers_backends_while_another_thread_looks_one_up(tmp_path: Path):
    """As a lookup that waits for the module which another thread imports."""
    from torch._dynamo.backends import registry

    done = threading.Event()

    def imported() -> None:
        registry.register_backend(lambda gm, inputs: gm, "made_by_a_module")
        done.set()

    with install(dump=tmp_path), dynamo._LOOKUP:
        thread = threading.Thread(target=imported)
        thread.start()
        assert done.wait(10)
    thread.join()
    del registry._COMPILER_FNS["made_by_a_module"]


def test_a_check_waits_for_another_threads_compile(tmp_path: Path):
    compiled = torch.compile(torch.sin, backend=debug_compile("eager", dump=tmp_path))
    compiled(torch.ones(2))
    done = threading.Event()

    def first_call_under_check() -> None:
        with hold_compile_lock():
            done.set()

    with inductor.compile_lock():
        thread = threading.Thread(target=first_call_under_check)
        thread.start()
        assert not done.wait(0.1)
    thread.join(10)
    assert done.is_set()


def test_autograd_stays_in_the_thread_that_holds_the_lock():
    with hold_compile_lock():
        assert not torch._C._is_multithreading_enabled()
        with hold_compile_lock():  # a check inside a check
            pass
    assert torch._C._is_multithreading_enabled()


def test_a_run_keeps_autograd_in_this_thread():
    """On a GPU, a thread of autograd's would wait for the lock that this one holds."""
    with hold_compile_lock(), under(dataclasses.asdict(Modes()), STATES):
        assert not torch._C._is_multithreading_enabled()


def test_other_threads_keep_their_default_dtype():
    state = {"autocast": (), "default_dtype": "float32"}
    ready, over = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (ready.set(), over.wait(10)))
    other.start()
    try:
        with hold_compile_lock():
            assert reference_state(state)["default_dtype"] == "float32"
        assert reference_state(state)["default_dtype"] == "float64"
    finally:
        over.set()
        other.join()


def test_threads_share_one_check_of_a_graph(tmp_path: Path):
    calls = []

    def counting(gm, example_inputs):
        def run(*args):
            calls.append(threading.get_ident())
            return gm(*args)

        return run

    backend = debug_compile(counting, dump=tmp_path, check="output")
    compiled = backend(torch.fx.symbolic_trace(lambda x: (x.sin(),)), [torch.ones(3)])
    barrier = threading.Barrier(4)

    def job() -> None:
        barrier.wait()
        compiled(torch.ones(3))

    threads = [threading.Thread(target=job) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(calls) == 4  # the check puts back the state of a backend
