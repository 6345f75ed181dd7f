"""Child processes of a script under `ctk run`: forked, spawned, started anew, or not watched."""

import json
import os
import sys
from pathlib import Path

import pytest

from ctk.toolkit.watch.script import run_script
from tests.helpers.faulty_backends import run_python

WORK = """
import torch
def bad(gm, inputs):
    return lambda *args: tuple(v + 1 for v in gm(*args))
def work(backend):
    def f(x):
        return x.sin()
    torch.compile(f, backend=bad if backend == "bad" else backend)(torch.ones(2))
"""

MULTIPROCESSING = """
import multiprocessing, sys
from work import work
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work, args=(b,)) for b in sys.argv[2:]]
    [child.start() for child in children]
    [child.join() for child in children]
"""

SUBPROCESS = """
import subprocess, sys
for flag in sys.argv[1:]:
    subprocess.run([sys.executable, *flag.split(), "child.py"], check=True)
"""

FORK = """
import os, signal
from work import work
for backend, kills in (("eager", True), ("eager", False)):
    child = os.fork()
    if child == 0:
        work(backend)
        if kills:
            os.kill(os.getpid(), signal.SIGKILL)
        break
    os.waitpid(child, 0)
"""

TERMINATED = """
import multiprocessing, subprocess, sys, time
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join()
    print("exit code", child.exitcode)
    subprocess.run([sys.executable, "-c", "pass"], close_fds=False, check=True)
"""

OF_INDUCTOR = """
import torch
from torch._inductor.cpu_vec_isa import valid_vec_isa_list
torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
valid_vec_isa_list()  # an empty cache: it loads a library in another process
"""

LATE = """
import importlib.util, os, shutil, sys
if importlib.util.find_spec("torch._dynamo"):  # a program that asks before it imports
    shutil.rmtree(os.environ["PYTHONPATH"].partition(os.pathsep)[0])
import torch._dynamo
print("goes on")
"""

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
if __name__ == "__main__":
    print(len(list(DataLoader(Data(), num_workers=1, batch_size=2))))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "child.py").write_text("from work import work\nwork('eager')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(folder: Path, text: str, *args: str) -> tuple[int, dict]:
    (folder / "script.py").write_text(text)
    code = "from ctk.toolkit.cli.main import main; main()"
    options = ("--out", folder / "dumps", "--json")
    done = run_python("-c", code, "run", *options, "script.py", *args, is_clean=True)
    return done.returncode, json.loads(done.stdout) | {"stderr": done.stderr}


@pytest.mark.parametrize(
    "method", ["spawn", *(pytest.param(m, marks=pytest.mark.slow) for m in ("fork", "forkserver"))]
)
def test_processes_of_multiprocessing(folder: Path, method: str):
    code, said = answer(folder, MULTIPROCESSING, method, "eager", "bad")
    assert code == 1, said
    assert said["children"] == {"graphs": 2, "processes": 2, "not_watched": 0}
    (failure,) = said["failures"]
    assert "accuracy" in failure["summary"] and (Path(failure["case"]) / "manifest.json").is_file()


@pytest.mark.slow
def test_a_python_that_is_started_anew(folder: Path):
    code, said = answer(folder, SUBPROCESS, "-u", "-B")
    assert code == 0, said
    assert said["children"] == {"graphs": 2, "processes": 2, "not_watched": 0}
    assert "2 graphs in 2 child processes" in said["answer"]


def test_children_that_are_not_watched_are_counted(folder: Path):
    (folder / "child.py").write_text("print()\n")
    code, said = answer(folder, SUBPROCESS, "-I", "-E", "-S", "-u")
    assert code == 125 and said["children"]["not_watched"] == 3
    assert "3 Python child processes were not watched" in said["answer"]


def test_processes_of_inductor_do_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
    code, said = answer(folder, OF_INDUCTOR)
    assert code == 0, said
    assert any((folder / "cache").rglob("*.so"))
    assert said["children"]["not_watched"] == 0


def test_children_start_and_end_as_without_ctk(folder: Path):
    code, said = answer(folder, TERMINATED)
    assert code == 125, said
    assert "exit code -15" in said["stderr"] and "KeyboardInterrupt" not in said["stderr"]
    assert said["children"]["not_watched"] == 0  # `close_fds=False` starts it by posix_spawn


@pytest.mark.slow
def test_a_child_goes_on_when_the_run_is_over(folder: Path):
    (folder / "child.py").write_text(LATE)
    text = SUBPROCESS.replace("check=True", "env={**os.environ}, check=True")
    code, said = answer(folder, f"import os\n{text}", "-u")
    assert code == 2 and "FileNotFoundError" in said["answer"]  # the script removed our book
    assert "goes on" in said["stderr"]


def test_forked_children_and_one_that_was_killed(folder: Path):
    code, said = answer(folder, FORK)
    assert code == 0, said
    assert said["children"] == {"graphs": 2, "processes": 2, "not_watched": 0}


@pytest.mark.slow
def test_workers_of_a_data_loader(folder: Path):
    code, said = answer(folder, LOADER)
    assert code == 0, said
    assert said["children"]["graphs"] == 1, said


def test_another_sitecustomize_runs_and_torch_is_not_imported(folder: Path):
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("print('mine')\n")
    (folder / "child.py").write_text(
        "import sys\nassert not {'torch', 'ctk.toolkit'} & set(sys.modules)\n"
    )
    text = "import os, sys\nos.environ['PYTHONPATH'] += os.pathsep + 'site'\n" + SUBPROCESS
    code, said = answer(folder, text, "-u")
    assert code == 125 and "mine" in said["stderr"]


def test_everything_is_put_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", "before")
    (folder / "script.py").write_text("import os\nprint(os.environ['PYTHONPATH'])\n")
    before, finders = dict(os.environ), list(sys.meta_path)
    run_script("script.py", dump=folder / "dumps")
    assert dict(os.environ) == before and sys.meta_path == finders


MISSING = """
import os
from work import work
from ctk.toolkit.watch import watched_case
def full(*args, **options):
    raise OSError(28, "No space left on device")
watched_case.save_case = full
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    work("eager")
    os._exit(0)
"""


def test_what_is_missing_of_a_child_is_told(folder: Path):
    code, said = answer(folder, MISSING)
    assert code == 0, said
    (missing,) = said["missing"]
    assert (missing["graph"], missing["what"]) == ("graph0", "case")
    assert "No space left on device" in missing["why"]
    assert "the dumps of 1 graph are missing or incomplete" in said["answer"]


OWN_WATCH = """
import ctk
from work import work
with ctk.install(dump="own", check="output", on_failure="warn") as hooks:
    work("eager")
assert hooks.session.graphs == 1
"""


def test_a_child_that_watches_itself_does_so_with_its_own_options(tmp_path: Path):
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "child.py").write_text(OWN_WATCH)
    script = tmp_path / "main.py"
    script.write_text(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, 'child.py'], check=True, cwd={str(tmp_path)!r})\n"
    )
    summary = run_script(script, dump=tmp_path / "dumps", check="off")
    assert summary.error is None
    assert summary.children.graphs == 1
    assert (tmp_path / "own").is_dir()
