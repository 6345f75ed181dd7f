"""Scripts that torch writes of a failing compile, imported as cases."""

import os
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import ProgramError
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.importers import find_source, load_cases
from ctk.toolkit.importers.torch_repro import read_script
from ctk.toolkit.options import CaseOptions

HEAD = """
import os
os.environ["CTK_TEST_OF_A_SCRIPT"] = "1"
import torch
from torch import tensor, device
from math import inf
import torch._dynamo.config
import torch._inductor.config
import torch._functorch.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
torch._inductor.config.trace.enabled = True
torch._functorch.config.unlift_effect_tokens = False
from torch.nn import *
"""

AFTER_AOT = (
    HEAD
    + """
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("_tensor_constant0", torch.arange(4.0))

    def forward(self, arg0_1, arg1_1, arg2_1):
        relu = torch.ops.aten.relu.default(arg2_1);  arg2_1 = None
        constant = self._tensor_constant0
        mul = torch.ops.aten.mul.Tensor(relu, constant);  constant = None
        view = torch.ops.aten.reshape.default(mul, [arg0_1 * 4]);  mul = None
        return (view, relu)

def load_args(reader):
    reader.symint(3)
    reader.const("arg1_1")
    buf0 = reader.storage({hash!r}, 48)
    reader.tensor(buf0, (3, 4), requires_grad=True, is_leaf=False)  # arg2_1
load_args._version = 0
mod = Repro()
if __name__ == "__main__":
    from torch._dynamo.repro.after_aot import run_repro
    raise AssertionError("the main block must not run")
    run_repro(mod, load_args, accuracy=True, command="run", save_dir={folder!r},
        tracing_mode={tracing!r}, check_str=None)
"""
)

AFTER_DYNAMO = (
    HEAD
    + """
class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Linear(in_features=4, out_features=2)

    def forward(self, L_x_ : torch.Tensor):
        l_x_ = L_x_
        relu = torch.nn.functional.relu(self.inner(l_x_), inplace=False);  l_x_ = None
        return (relu,)

mod = Repro()

def load_args(reader):
    buf0 = reader.storage(None, 48, dtype_hint=torch.float32)
    reader.tensor(buf0, (3, 4), (1, 3), requires_grad=True, is_leaf=True)  # L_x_
load_args._version = 0

if __name__ == "__main__":
    from torch._dynamo.repro.after_dynamo import run_repro
    run_repro(mod, load_args, accuracy=False, command="minify",
        save_dir=None, autocast=False, backend="aot_eager")
"""
)


def stored(folder: Path, values: torch.Tensor, name: str = "abc") -> str:
    (folder / "storages").mkdir(parents=True)
    torch.save(values.untyped_storage(), folder / "storages" / name)
    return name


def after_aot(folder: Path, *, name: str | None = "abc", tracing: str = "real") -> Path:
    path = folder / "repro.py"
    text = AFTER_AOT.replace("{hash!r}", repr(name)).replace("{tracing!r}", repr(tracing))
    path.write_text(text.replace("{folder!r}", repr(str(folder / "gone"))))
    return path


class TestAfterAot:
    def test_graph_inputs_and_options(self, tmp_path: Path) -> None:
        values = torch.linspace(-1, 1, 12)
        stored(tmp_path / "checkpoints", values)  # where the script says, there is nothing any more
        (case,) = load_cases(after_aot(tmp_path))
        assert (case.target, case.synthetic, case.dynamic) == ("inductor", (), {})
        assert case.config == {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
        assert not case.modes.grad
        assert case.inputs[:2] == (3, None)
        given = case.inputs[2]
        assert isinstance(given, torch.Tensor)
        assert torch.equal(given, values.reshape(3, 4))
        assert not given.requires_grad
        first = run_eager(case).values["out0"]
        assert isinstance(first, torch.Tensor)
        assert torch.equal(first, (values.reshape(3, 4).relu() * torch.arange(4.0)).reshape(12))

    def test_what_it_sets_is_put_back(self, tmp_path: Path) -> None:
        before = inductor.known_options()
        load_cases(after_aot(tmp_path, name=None))
        assert inductor.known_options() == before
        assert "CTK_TEST_OF_A_SCRIPT" not in os.environ

    def test_inputs_that_are_not_stored_are_made_up(self, tmp_path: Path) -> None:
        (one,), (other,) = (load_cases(after_aot(tmp_path, name="gone")) for _ in range(2))
        assert one.synthetic == ("arg2_1",)
        assert torch.equal(one.inputs[2], other.inputs[2])  # type: ignore[arg-type]  # a tensor

    def test_as_tlparse_calls_it(self, tmp_path: Path) -> None:
        path = after_aot(tmp_path).rename(tmp_path / "fx_graph_runnable_7.txt")
        (case,) = load_cases(path)
        assert (case.target, find_source(path).name) == ("inductor", "fx_graph_runnable_7")

    def test_sizes_stay_symbolic(self, tmp_path: Path) -> None:
        (case,) = load_cases(after_aot(tmp_path, tracing="symbolic"))
        assert case.dynamic == {"arg2_1": ("arg0_1", None)}

    def test_another_target_takes_no_options_of_inductor(self, tmp_path: Path) -> None:
        (case,) = load_cases(after_aot(tmp_path), None, CaseOptions(target="ctk"))
        assert (case.target, case.config) == ("ctk", {})

    def test_a_storage_that_would_run_code_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / "checkpoints" / "storages"
        folder.mkdir(parents=True)
        torch.save(Hostile(), folder / "abc")
        with pytest.raises(ProgramError, match="is not a storage that torch wrote"):
            load_cases(after_aot(tmp_path))
        assert "CTK_HOSTILE" not in os.environ

    def test_a_sub_graph_that_torch_lost(self, tmp_path: Path) -> None:
        path = after_aot(tmp_path)
        lost = "        self.true_graph_0 = <lambda>()\n\n    def forward"
        path.write_text(path.read_text().replace("\n    def forward", lost, 1))
        with pytest.raises(ProgramError, match="did not write its sub-graph true_graph_0"):
            load_cases(path)

    def test_a_device_that_is_not_here(self, tmp_path: Path) -> None:
        path = after_aot(tmp_path, name=None)
        path.write_text(path.read_text().replace(", 48)", ", 48, device=device('cuda', 99))"))
        with pytest.raises(ProgramError, match="an input lies on cuda:99, which cannot be used"):
            load_cases(path)

    def test_an_input_that_is_larger_than_its_storage(self, tmp_path: Path) -> None:
        path = after_aot(tmp_path, name=None)
        path.write_text(path.read_text().replace("(3, 4)", "(3, 5)"))
        with pytest.raises(ProgramError, match="takes 60 bytes, but its storage has 48"):
            load_cases(path)

    def test_a_module_that_cannot_be_made(self, tmp_path: Path) -> None:
        path = after_aot(tmp_path, name=None)
        text = path.read_text().replace("super().__init__()", "raise KeyError(3)")
        path.write_text(text.replace("mod = Repro()", ""))
        with pytest.raises(ProgramError, match=r"Repro\(\) in repro.py raised KeyError: 3"):
            load_cases(path)

    def test_too_few_inputs(self, tmp_path: Path) -> None:
        path = after_aot(tmp_path)
        path.write_text(path.read_text().replace("    reader.symint(3)\n", ""))
        with pytest.raises(ProgramError, match=r"takes 3 inputs, but load_args\(\) gives 2"):
            load_cases(path)


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return os.putenv, ("CTK_HOSTILE", "1")


class TestAfterDynamo:
    def test_backend_gradients_and_strides(self, tmp_path: Path) -> None:
        path = tmp_path / "minifier_launcher.py"
        path.write_text(AFTER_DYNAMO)
        (case,) = load_cases(path)
        assert (case.target, case.config) == ("aot_eager", {})
        assert case.modes.backward
        strides = {v.stride() for v in case.inputs if isinstance(v, torch.Tensor)}
        assert (1, 3) in strides
        assert case.synthetic

    def test_what_its_text_says(self, tmp_path: Path) -> None:
        path = tmp_path / "minifier_launcher.py"
        path.write_text(AFTER_DYNAMO)
        script = read_script(path)
        assert (script.after, script.target) == ("dynamo", "aot_eager")


@pytest.mark.slow
def test_inductors_test_bug_is_found_from_there(tmp_path: Path) -> None:
    import ctk

    stored(tmp_path / "checkpoints", torch.linspace(-1, 1, 12))
    report = ctk.check(after_aot(tmp_path))
    assert report.judgement.verdict is Verdict.REPRODUCES
    assert report.wrong[0].where.startswith("lowered/inductor:forward.cpp_fused")
