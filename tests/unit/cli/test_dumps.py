"""run, ls and show: what a dump holds, half-written and damaged cases included."""

from pathlib import Path

import pytest

from tests.helpers.cli import SCRIPT, ctk, write


class TestRun:
    def test_good_script_gets_its_arguments(self, tmp_path: Path) -> None:
        script = write(tmp_path, "script.py", SCRIPT)
        said = ctk("run", "--out", tmp_path / "dumps", script, "--json", "-x", "3")
        assert said.code == 0, said.out + said.err
        assert said.first == "no failure: 1 graph compiled, 1 call compared with eager"
        assert "from the script ['--json', '-x', '3']" in said.err

    def test_failure_is_found_and_saved(self, tmp_path: Path) -> None:
        backend = "def wrong(gm, inputs): return lambda *a: tuple(v + 1 for v in gm(*a))\n"
        write(tmp_path, "wrong_backend.py", backend)
        text = SCRIPT.replace('"aot_eager"', "wrong").replace(
            "import torch\n", "import torch\nfrom wrong_backend import wrong\n", 1
        )
        script = write(tmp_path, "script.py", text)
        said = ctk("run", "--json", "--out", tmp_path / "dumps", script)
        assert said.code == 1
        (failure,) = said.data["failures"]
        listed = ctk("ls", tmp_path / "dumps", "--json").data["cases"]
        assert [entry["path"] for entry in listed if entry["failure"]] == [failure["case"]]

    def test_script_that_raises(self, tmp_path: Path) -> None:
        said = ctk("run", write(tmp_path, "bad.py", "def f():\n    raise ValueError('no')\nf()\n"))
        assert said.code == 1
        assert said.first.startswith("ctk: ")
        assert said.first.endswith("raised ValueError: no; no call was compared with eager")

    def test_script_that_compiles_nothing(self, tmp_path: Path) -> None:
        said = ctk("run", write(tmp_path, "nothing.py", "print('hello')\n"))
        assert said.code == 125
        assert said.first.endswith(
            "compiled nothing: it never calls torch.compile, or did before it was watched"
        )

    def test_no_such_script(self, tmp_path: Path) -> None:
        assert ctk("run", tmp_path / "missing.py").code == 2

    @pytest.mark.parametrize("word", ["--chek", "--chek=output"])
    def test_a_misspelt_option_is_no_script(self, word: str, tmp_path: Path) -> None:
        said = ctk("run", word, "output", write(tmp_path, "script.py", SCRIPT))
        assert said.code == 2
        assert f"no such option: '{word}'; did you mean '--check'?" in said.err


class TestListAndShow:
    def test_cases_half_written_and_damaged_ones(self, case: Path) -> None:
        dump = case.parent
        (dump / ".graph1.partial").mkdir()
        damaged = dump / "graph2"
        damaged.mkdir()
        (damaged / "manifest.json").write_text('{"schema": 1, "na')
        newer = dump / "graph3"
        newer.mkdir()
        (newer / "manifest.json").write_text('{"schema": 999}')
        said = ctk("ls", dump, "--json")
        assert said.code == 0
        problems = {Path(e["path"]).name: e["problem"] for e in said.data["cases"]}
        assert problems["graph0"] is None
        assert "half-written" in problems[".graph1.partial"]
        assert problems["graph2"]
        assert "newer ctk" in problems["graph3"]
        assert said.data["answer"] == f"4 cases in {dump}, 1 failing, 3 unusable"

    def test_entry_says_target_failure_and_size(self, case: Path) -> None:
        (entry,) = ctk("ls", case.parent, "--json").data["cases"]
        assert (entry["name"], entry["target"], entry["call_nodes"]) == ("graph0", "ctk", 2)
        assert entry["failure"].startswith("accuracy")

    def test_truncated_file_is_noticed(self, case: Path) -> None:
        graph = case / "graph.json"
        graph.write_text(graph.read_text()[:50])
        (entry,) = ctk("ls", case.parent, "--json").data["cases"]
        assert "graph.json has 50 bytes" in entry["problem"]

    def test_nothing_dumped_yet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        said = ctk("ls")
        assert said.code == 0
        assert said.first.startswith("no dumps")

    def test_show_has_target_options_failure_and_graph(self, case: Path) -> None:
        said = ctk("show", case)
        assert said.code == 0
        assert said.first.startswith("case graph0: target ctk, 2 calls, fails: accuracy")
        assert "negate_relu" in said.out
        assert "class Graph(torch.nn.Module)" in said.out

    def test_show_pass_needs_a_dump(self, case: Path) -> None:
        said = ctk("show", case, "--pass", 3)
        assert said.code == 2
        assert "no passes were dumped" in said.err

    def test_show_pass_of_a_dump(self, tmp_path: Path) -> None:
        text = SCRIPT.replace("aot_eager", "ctk").replace("relu(x) + 1", "relu(x * 1) + 1")
        script = write(tmp_path, "script.py", text)
        assert ctk("run", "--out", tmp_path / "dumps", script).code == 0
        (entry,) = ctk("ls", tmp_path / "dumps", "--json").data["cases"]
        shown = ctk("show", entry["path"], "--json").data
        (kernel,) = shown["kernels"]
        assert kernel["kernel"] == "lowered/c:forward.add"
        assert (Path(entry["path"]) / "kernels" / kernel["file"]).is_file()
        assert "lowered/c:forward.add" in ctk("show", entry["path"]).out
        passes = shown["passes"]
        changed = next(each for each in passes if each["changed"])
        said = ctk("show", entry["path"], "--pass", changed["number"])
        assert said.code == 0
        assert said.first.startswith(f"pass {changed['number']} ({changed['pass']}): ")
        idle = next(each for each in passes if not each["changed"])
        assert "changed nothing" in ctk("show", entry["path"], "--pass", idle["number"]).first
