"""What autotuning keeps, and which kernels it leaves alone."""

from pathlib import Path

import pytest
import torch

from ctk.compiler.cache_folder.notes import Notes
from ctk.compiler.codegen.triton import tuning
from ctk.compiler.codegen.triton.heuristics import Knobs
from ctk.compiler.lowering.ir import Const, Kernel, Load, Store, Sweep, Value
from ctk.compiler.sizes.index import Var, as_index, of_atom

LOOP = Var("i", as_index(4))


def kernel(value: Value, **options) -> Kernel:
    store = Store("out", of_atom(LOOP), value, **options)
    return Kernel("k", (LOOP,), (Sweep((), (store,)),), ("node",), torch.device("cpu"))


def test_a_choice_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path / "cache"))
    assert tuning.recall("a", Knobs()) is None
    tuning.keep("a", Knobs(block=1, warps=-1))
    tuning.keep("b", Knobs())
    assert tuning.recall("a", Knobs(row_limit=7)) == Knobs(block=1, warps=-1, row_limit=7)
    notes = Notes(tmp_path / "cache")
    for strange in ("", "block=9 warps=0", "block=1", "1,1", "block=1 warps=1\n"):
        notes.choose("triton-layout a", strange)
        assert tuning.recall("a", Knobs()) is None
    monkeypatch.setenv("CTK_CACHE", "0")
    assert tuning.recall("b", Knobs()) is None
    tuning.keep("b", Knobs())


def test_where_nothing_can_be_written_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    tuning.keep("a", Knobs())
    assert tuning.recall("a", Knobs()) is None


def test_only_what_may_run_twice_is_timed() -> None:
    one = Const(1.0, torch.float32)
    assert tuning.may_run_twice(kernel(one))
    assert not tuning.may_run_twice(kernel(one, mode="add"))
    assert not tuning.may_run_twice(kernel(Load("out", of_atom(LOOP), torch.float32)))
