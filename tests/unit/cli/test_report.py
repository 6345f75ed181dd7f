"""`ctk report`: the page of each kind of folder, and `--report` of other commands."""

import json
import shutil
from pathlib import Path

import pytest

import ctk as library
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.trace.writing import write_trace
from ctk.toolkit.operations.versions.questions import VersionAnswer
from ctk.toolkit.oracle.answers.journal import Header, start_journal
from tests.helpers.case_folders import linear_case
from tests.helpers.cli import BROKEN_PASS, GOOD, ctk, write
from tests.helpers.made_traces import made_trace


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagnosed")
    program = write(folder, "broken.py", GOOD + BROKEN_PASS)
    said = ctk("diagnose", program, "--out", folder / "out", "--report")
    assert said.code == 1 and f"report     {folder / 'out' / 'report.html'}" in said.out
    return folder / "out"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_diagnosis(diagnosed: Path, tmp_path: Path) -> None:
    said = ctk("report", diagnosed, "--out", tmp_path / "page.html")
    assert said.code == 0 and "joint/negate_relu (confirmed)" in said.first
    text = text_of(tmp_path / "page.html")
    for words in ("Without it alone the case passes", "repro.py", "Certificate", "torch"):
        assert words in text
    assert json.loads(text.split('id="data">')[1].split("</script>")[0])["trace"]["steps"]
    assert text_of(diagnosed / "report.html") == text


def test_an_unfinished_diagnosis_says_how_to_go_on(diagnosed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(diagnosed, folder)
    record = json.loads(text_of(folder / "diagnosis.json"))
    (folder / "diagnosis.json").write_text(json.dumps({**record, "state": "reducing"}))
    (folder / "trace.json").unlink()
    assert ctk("report", folder).code == 0
    text = text_of(folder / "report.html")
    assert "unfinished" in text and "--resume" in text and "No compile was recorded" in text


def test_a_folder_of_several_links_to_a_page_of_each(diagnosed: Path, tmp_path: Path) -> None:
    shutil.copytree(diagnosed, tmp_path / "all" / "first")
    save_case(linear_case(), tmp_path / "all" / "a case")
    said = ctk("report", tmp_path / "all")
    assert said.code == 0, said.out
    text = text_of(tmp_path / "all" / "report.html")
    assert 'href="first/report.html"' in text and 'href="a%20case/report.html"' in text
    assert (tmp_path / "all" / "a case" / "report.html").is_file()


def test_a_case_with_a_trace(tmp_path: Path) -> None:
    folder = save_case(linear_case(), tmp_path / "case")
    write_trace(made_trace(), folder)
    assert ctk("report", folder).code == 0
    text = text_of(folder / "report.html")
    assert "First wrong node: add_tensor_2." in text and "not yet a proof" in text


def test_a_search_over_releases(tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    folder.mkdir()
    header = Header("bisect-version", "net.py", {}, "full", (), {})
    with start_journal(folder, header) as journal:
        journal.note("torch 2.10.0 0123", VersionAnswer("bad", "FAILURE: accuracy", 1.0))
        journal.note("torch 2.9.1 0123", VersionAnswer("good", "NO FAILURE", 1.0))
    assert ctk("report", folder).code == 0
    text = text_of(folder / "report.html")
    assert text.index("torch 2.9.1</td>") < text.index("torch 2.10.0</td>")
    assert "torch 2.10.0 fails; torch 2.9.1 passes" in text and "--resume" in text


def test_a_begun_operation(tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    folder.mkdir()
    start_journal(folder, Header("diagnose", "net.py", {}, "full", (), {})).close()
    assert ctk("report", folder).code == 0
    assert "ctk diagnose net.py" in text_of(folder / "report.html")


@pytest.mark.parametrize("made", [False, True])
def test_nothing_to_show_is_an_error(made: bool, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    if made:
        folder.mkdir()
    said = ctk("report", folder)
    assert said.code == 2 and str(folder) in said.err + said.out
    assert not (tmp_path / "report.html").exists()


def test_check_and_diff_write_a_new_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = write(tmp_path, "broken.py", GOOD + BROKEN_PASS)
    said = ctk("check", program, "--report", "--json")
    assert said.code == 1 and said.data["report"] == "report.html"
    assert "joint/negate_relu" in text_of(tmp_path / "report.html")
    said = ctk("diff", program, "--config", "custom_passes={}", "--report", "--json")
    assert said.code == 1 and said.data["report"] == "report_2.html"
    assert "is wrong" in text_of(tmp_path / "report_2.html")


def test_results_show_themselves_in_a_notebook(diagnosed: Path, tmp_path: Path) -> None:
    report = library.check(str(diagnosed / "case"), trust=True)
    assert "joint/negate_relu" in report._repr_html_()
    found = library.minify(str(diagnosed / "case"), trust=True, out=tmp_path / "small")
    assert found.reduction is not None
    for shown in (found._repr_html_(), found.reduction._repr_html_()):
        assert shown is not None and shown.startswith("<iframe sandbox")


def test_a_journal_of_another_kind_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("{}\n")
    said = ctk("report", tmp_path)
    assert said.code == 2 and "Traceback" not in said.out + said.err


def test_a_report_that_cannot_be_written_keeps_the_verdict(tmp_path: Path) -> None:
    program, out = write(tmp_path, "broken.py", GOOD + BROKEN_PASS), tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("<h1>mine</h1>")
    said = ctk("check", program, "--out", out, "--report")
    assert said.code == 1 and "joint/negate_relu" in said.out
    assert "report     none: " in said.out and "is not a report of ctk" in said.out
    assert text_of(out / "report.html") == "<h1>mine</h1>"


def test_a_foreign_report_stops_no_index(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_case(linear_case(), tmp_path / name)
    (tmp_path / "a" / "report.html").write_text("<h1>mine</h1>")
    assert ctk("report", tmp_path).code == 0
    text = text_of(tmp_path / "report.html")
    assert 'href="b/report.html"' in text and 'href="a/report.html"' not in text
    assert "Left out" in text and "is not a report of ctk" in text


@pytest.mark.parametrize(
    ("verdict", "name", "badge"),
    [
        ("reproduces", "net", "1 failing"),
        ("passes", "net fails sometimes", "no failure recorded"),
        ("flaky", "net", "cannot tell"),
    ],
)
def test_the_tone_of_an_index_is_that_of_its_pages(
    verdict: str, name: str, badge: str, diagnosed: Path, tmp_path: Path
) -> None:
    shutil.copytree(diagnosed, tmp_path / "operation")
    save_case(linear_case(), tmp_path / "case")
    path = tmp_path / "operation" / "diagnosis.json"
    path.write_text(json.dumps({**json.loads(text_of(path)), "verdict": verdict, "case": name}))
    said = ctk("report", tmp_path, "--json")
    assert said.data["verdict"] == badge


def test_an_unreadable_operation_is_not_a_pass(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "diagnosis.json").write_text("{")
    said = ctk("report", tmp_path, "--json")
    assert said.code == 0 and said.data["verdict"] == "cannot tell"
    assert "not decided: a, b" in text_of(tmp_path / "report.html")


def test_the_script_of_a_folder_beside_this_one(
    diagnosed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (diagnosed.parent / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(diagnosed.parent / "here")
    assert ctk("report", "../out", "--out", tmp_path / "page.html").code == 0
    assert "No script was written" not in text_of(tmp_path / "page.html")


@pytest.mark.parametrize("name", ["../secret/repro.py", "/secret/repro.py"])
def test_a_record_leads_out_of_no_folder(name: str, diagnosed: Path, tmp_path: Path) -> None:
    shutil.copytree(diagnosed, tmp_path / "out")
    record = json.loads(text_of(tmp_path / "out" / "diagnosis.json"))
    record["repro"]["path"] = name if name.startswith(".") else f"{tmp_path}{name}"
    (tmp_path / "out" / "diagnosis.json").write_text(json.dumps(record))
    said = ctk("report", tmp_path / "out")
    assert said.code == 2 and "leads out of its folder" in said.out + said.err
