"""What operations of the library take: programs, callables, graphs, cases; and their keywords."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import symbolic_trace

import ctk
from ctk.compiler.errors import CaseError, ConfigError, ProgramError, TargetError
from ctk.toolkit.case.formats.files import make_output_folder
from ctk.toolkit.importers import IMPORTERS, case_folder, find_source, load_cases, program
from ctk.toolkit.options import CaseOptions, options_of
from tests.helpers.cli import BROKEN_PASS, GOOD, TWO_GRAPHS, write


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.relu(x) * factor


X = torch.linspace(-1, 1, 6)


class TestInMemory:
    @pytest.mark.parametrize(
        "inputs", [(X,), [X], X, {"x": X}], ids=["tuple", "list", "tensor", "dict"]
    )
    def test_a_callable_is_captured(self, inputs: object) -> None:
        (case,) = load_cases(scale, inputs)  # type: ignore[arg-type]  # each form is one of Inputs
        assert case.target == "ctk"
        assert len(case.inputs) == 1

    def test_a_module(self) -> None:
        (case,) = load_cases(torch.nn.Linear(6, 2), (X,), CaseOptions(target="aot_eager"))
        assert case.target == "aot_eager"

    def test_a_graph_is_taken_as_it_is_on_copies(self) -> None:
        gm = symbolic_trace(scale)
        (case,) = load_cases(gm, (X, 3.0))
        assert [n.name for n in case.graph.graph.nodes] == [n.name for n in gm.graph.nodes]
        assert case.graph is not gm
        assert case.inputs[0] is not X

    def test_a_graph_with_leaf_modules_is_captured(self) -> None:
        (case,) = load_cases(symbolic_trace(torch.nn.Sequential(torch.nn.Linear(6, 2))), (X,))
        assert all(node.op != "call_module" for node in case.graph.graph.nodes)

    def test_missing_inputs_and_what_is_no_program(self) -> None:
        with pytest.raises(ProgramError, match="example inputs are missing"):
            load_cases(scale)
        with pytest.raises(ProgramError, match="int is not a program"):
            load_cases(3)  # type: ignore[arg-type]  # on purpose

    def test_an_unknown_target_is_told_before_anything_is_captured(self) -> None:
        def never(x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("captured")

        with pytest.raises(TargetError, match="did you mean 'inductor'"):
            load_cases(never, (X,), CaseOptions(target="inducter"))


class TestNamed:
    def test_a_program_and_its_graphs(self, tmp_path: Path) -> None:
        path = write(tmp_path, "two.py", TWO_GRAPHS)
        assert [case.name for case in load_cases(path)] == ["graph0", "graph1"]
        assert [case.name for case in load_cases(path, None, CaseOptions(graph=1))] == ["graph1"]
        with pytest.raises(CaseError, match="numbered from 0"):
            load_cases(path, None, CaseOptions(graph=2))

    def test_a_case_by_value_folder_and_manifest(self, tmp_path: Path) -> None:
        (case,) = load_cases(scale, (X,))
        folder = ctk.save_case(case, tmp_path / "dump" / "graph0", inputs="full")
        for subject in (folder, folder / "manifest.json", folder.parent, ctk.load_case(folder)):
            (found,) = load_cases(subject)
            assert torch.equal(torch.as_tensor(found.inputs[0]), X)

    def test_what_is_asked_for_wins_and_takes_the_signature_away(self) -> None:
        (case,) = load_cases(scale, (X,), CaseOptions(config={"fuel": 3}))
        case = dataclasses.replace(case, signature=ctk_signature())
        (same,) = load_cases(case)
        assert same.signature is not None
        (other,) = load_cases(case, None, CaseOptions(target="aot_eager"))
        assert (other.target, other.config, other.signature) == ("aot_eager", {}, None)
        (more,) = load_cases(case, None, CaseOptions(config={"disable": []}))
        assert (more.config, more.signature) == ({"fuel": 3, "disable": []}, None)

    def test_what_no_importer_knows(self, tmp_path: Path) -> None:
        path = write(tmp_path, "model.bin", "")
        with pytest.raises(CaseError, match=r"loadable are: .*FILE\.py or"):
            load_cases(path)

    def test_each_name_has_one_importer(self, tmp_path: Path) -> None:
        file = write(tmp_path, "net.py", GOOD)
        names = (str(file), f"{file}:f,x", str(tmp_path), str(tmp_path / "missing"))
        accepted = [next(i.form for i in IMPORTERS if i.accepts(name)) for name in names]
        assert accepted == [program.IMPORTER.form] * 2 + [case_folder.IMPORTER.form] * 2


def ctk_signature() -> object:
    from ctk.toolkit.case.failure import Signature

    return Signature("accuracy")


class TestKeywords:
    def test_an_unknown_one_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(TypeError, match="'taget'; did you mean 'target'"):
            ctk.check(scale, (X,), taget="ctk")  # type: ignore[call-arg]  # on purpose

    def test_one_of_another_operation_is_refused(self) -> None:
        with pytest.raises(TypeError, match="max_questions"):
            ctk.check(scale, (X,), max_questions=3)  # type: ignore[call-arg]  # on purpose

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"target": scale}, "target is a function; name it"),
            ({"config": ctk.Config()}, "config is a Config; it must be a dict"),
            ({"graph": -1}, "graph is -1; it must be the number"),
            ({"graph": "a"}, "graph is 'a'; it must be the number"),
        ],
    )
    def test_a_value_of_another_type_is_refused(
        self, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            ctk.check(scale, (X,), **options)

    def test_inputs_for_what_has_its_own_are_refused(self) -> None:
        with pytest.raises(ProgramError, match="net has inputs of its own"):
            ctk.check("net.py", (X,))

    def test_what_is_not_given_has_its_default(self) -> None:
        assert options_of(CaseOptions, {}) == CaseOptions()


class TestFolders:
    @pytest.mark.parametrize(
        ("subject", "name"),
        [
            ("dumps/train_1/graph0", "graph0"),
            ("models/net.py:build,example", "net"),
            (Path("models/net.py"), "net"),
            (scale, "scale"),
            (torch.nn.ReLU(), "ReLU"),
        ],
    )
    def test_name(self, subject: str, name: str) -> None:
        assert find_source(subject).name == name

    def test_new_folders_do_not_collide(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert [make_output_folder(None, "found").name for _ in range(3)] == [
            "found",
            "found_2",
            "found_3",
        ]

    def test_a_named_folder_must_be_empty(self, tmp_path: Path) -> None:
        write(tmp_path, "notes.txt", "mine")
        with pytest.raises(CaseError, match="is not empty"):
            make_output_folder(tmp_path, "found")


class TestCheck:
    def test_a_report_of_a_right_program(self) -> None:
        report = ctk.check(scale, (X,))
        assert report.ok
        assert report.findings
        assert str(report).startswith("no failure: 1 graph,")

    def test_a_report_of_a_wrong_one(self, tmp_path: Path) -> None:
        report = ctk.check(write(tmp_path, "broken.py", GOOD + BROKEN_PASS))
        assert not report.ok
        assert [finding.where for finding in report.wrong] == ["joint/negate_relu"]
        assert str(report).startswith("wrong: graph0: joint/negate_relu at ")
