"""`pytest:FILE::TEST`: the graphs of a test that compiles, with its backend and parameters."""

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ctk.compiler.errors import CaptureError, ProgramError, TargetError
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.importers import find_source, load_cases
from ctk.toolkit.importers.pytest_test import slug
from ctk.toolkit.options import CaseOptions

TESTS = """
import pytest, torch
from torch._inductor import config

def backend(gm, inputs):
    return gm.forward

@pytest.fixture
def scale():
    return 3.0

class TestNet:
    @pytest.mark.parametrize("n", [2, 3])
    def test_it(self, n, scale):
        torch.compiler.reset()
        compiled = torch.compile(torch.nn.Linear(n, n), backend="aot_eager")
        compiled(torch.ones(2, n) * scale).sum().backward()
        with torch.no_grad():
            compiled(torch.ones(5, n))

def test_that_fails():
    assert torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(3)).sum() == 0

def test_options():
    torch.compile(lambda x: x.relu(), options={"max_autotune": False})(torch.ones(3))

@pytest.fixture
def wrong_relu():
    with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy", "trace.enabled": True}):
        yield

def test_patched(wrong_relu):
    torch.compile(lambda x: x.relu())(torch.ones(3))
    config.epilogue_fusion = False
    torch.compile(lambda x: x.sin())(torch.ones(3))

def test_local():
    torch.compile(lambda x: x + 1, backend=lambda gm, inputs: gm.forward)(torch.ones(3))

def test_nothing():
    pass

def test_skipped():
    pytest.skip("no such machine")

def test_error():
    raise ValueError("before anything is compiled")
"""


@pytest.fixture
def file(tmp_path: Path) -> Generator[Path]:
    name = f"test_made_{abs(hash(tmp_path))}"
    path = tmp_path / f"{name}.py"
    path.write_text(TESTS)
    yield path
    sys.modules.pop(name, None)


class TestCases:
    def test_parameters_fixtures_classes_and_recompiles(self, file: Path) -> None:
        cases = load_cases(f"pytest:{file}::TestNet::test_it")
        assert [case.name for case in cases] == [
            "TestNet.test_it.2.graph0",
            "TestNet.test_it.2.graph1",
            "TestNet.test_it.3.graph0",
            "TestNet.test_it.3.graph1",
        ]
        assert {case.target for case in cases} == {"aot_eager"}
        assert [case.modes.backward for case in cases] == [True, False] * 2

    def test_one_set_of_parameters(self, file: Path) -> None:
        cases = load_cases(f"pytest:{file}::TestNet::test_it[3]")
        assert {case.name.rpartition(".")[0] for case in cases} == {"TestNet.test_it.3"}

    def test_a_test_that_fails_gives_what_it_compiled(self, file: Path) -> None:
        (case,) = load_cases(f"pytest:{file}::test_that_fails")
        assert case.target == f"{file.stem}:backend"

    def test_options_of_the_test(self, file: Path) -> None:
        (case,) = load_cases(f"pytest:{file}::test_options")
        assert (case.target, case.config) == ("inductor", {"max_autotune": False})
        (case,) = load_cases(f"pytest:{file}::test_options", None, CaseOptions(target="ctk"))
        assert (case.target, case.config) == ("ctk", {})

    def test_what_the_test_sets_of_inductor(self, file: Path) -> None:
        before = inductor.known_options()
        cases = load_cases(f"pytest:{file}::test_patched")
        wrong = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
        assert [case.config for case in cases] == [wrong, {**wrong, "epilogue_fusion": False}]
        assert inductor.known_options() == before
        (first, _) = load_cases(f"pytest:{file}::test_patched", None, CaseOptions(target="ctk"))
        assert first.config == {}

    def test_nothing_is_left_behind(self, file: Path) -> None:
        path, before = list(sys.path), dict(os.environ)
        load_cases(f"pytest:{file}::test_options")
        assert sys.path == path
        assert dict(os.environ) == before

    def test_a_name_for_folders(self, file: Path) -> None:
        assert (
            find_source(f"pytest:{file}::TestNet::test_it[2-a b]").name == "TestNet.test_it.2-a.b"
        )
        assert slug("tests/test_a.py") == "test_a"


class TestRefusals:
    def test_no_name(self) -> None:
        with pytest.raises(ProgramError, match="pytest: names no test"):
            load_cases("pytest:")

    def test_a_local_backend_needs_a_target(self, file: Path) -> None:
        with pytest.raises(TargetError, match=r"of .*::test_local is local.*\n.*--target"):
            load_cases(f"pytest:{file}::test_local")
        assert load_cases(f"pytest:{file}::test_local", None, CaseOptions(target="aot_eager"))

    def test_a_test_that_compiles_nothing(self, file: Path) -> None:
        with pytest.raises(CaptureError, match="it never calls torch"):
            load_cases(f"pytest:{file}::test_nothing")

    def test_a_test_that_is_skipped_or_fails_first(self, file: Path) -> None:
        with pytest.raises(ProgramError, match=r"test_skipped is skipped: .*no such machine"):
            load_cases(f"pytest:{file}::test_skipped")
        with pytest.raises(ProgramError, match=r"fails in its call: .*before anything"):
            load_cases(f"pytest:{file}::test_error")

    def test_bad_names_get_the_nearest(self, file: Path) -> None:
        with pytest.raises(ProgramError, match=r"no such test: .*did you mean 'test_options'"):
            load_cases(f"pytest:{file}::test_optionz")
        with pytest.raises(ProgramError, match=r"did you mean 'TestNet::test_it\[3\]'"):
            load_cases(f"pytest:{file}::TestNet::test_it[4]")
        with pytest.raises(ProgramError, match=r"no such file: .*did you mean 'test_made"):
            load_cases(f"pytest:{file.with_stem(file.stem + 'x')}::test_options")

    def test_a_file_that_cannot_be_imported(self, file: Path) -> None:
        file.write_text("import no_such_module_at_all")
        with pytest.raises(ProgramError, match="no_such_module_at_all"):
            load_cases(f"pytest:{file}::test_options")
