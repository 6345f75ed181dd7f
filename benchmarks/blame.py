"""Who is to blame: ctk next to torch's CompilerBisector, on real bugs of Inductor, in one run.

The programs are those of `tests/real_bugs`: each bug alone, and hidden in a larger model; `CULPRIT`
is a regular expression for what ctk should name (empty: there is no bug). Each tool is a process of
its own with an empty cache of Inductor, so that its first compile is cold, as a user's is. Seconds
are those that the processor worked for the whole command, start, imports and C++ compiler included:
a machine that does other things too changes them little.

CompilerBisector gets a test function that plays the program as ctk does, and counts as right when
it names the stage of the culprit (`STAGES`): it names neither lowering nor decomposition.

    python -m benchmarks.blame [NAME ...] [--diagnose] [--device cuda]
"""

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

FILES = sorted((Path(__file__).parent.parent / "tests" / "real_bugs").glob("*.py"))
SAME_DRAWS = {"fallback_random": True}  # else no random program could ever agree with eager
TIMEOUT_SECONDS = 1200
COMMAND = "from ctk.toolkit.cli.main import main; main()"

STAGES = {
    "joint": "joint_graph_passes|pre_grad_passes",
    "forward": "post_grad_passes",
    "backward": "post_grad_passes",
    "frozen": "freezing",
    "lowered": "lowerings|inductor/",
    "dispatch": "decomposition|aot_eager_decomp",
    "dynamo": "eager/",
}
"""What CompilerBisector names (`backend/subsystem`) for a culprit of each stage of ctk's."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A program of the corpus."""

    path: Path
    culprit: str
    options: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem


def bug_of(path: Path) -> Bug:
    """Read what a file says of its own bug, without running it."""
    text = path.read_text(encoding="utf-8")
    culprit = re.search(r'^CULPRIT = r?"(.*)"', text, re.M)
    backward = ("--backward",) if re.search(r"^BACKWARD = True", text, re.M) else ()
    return Bug(path, culprit.group(1) if culprit else "", backward)


def moved(path: Path, device: str, folder: Path) -> Path:
    """Return a copy of a program that makes its tensors on a device, as users' programs do."""
    text = path.read_text(encoding="utf-8")
    copy = folder / path.name
    default = f'\ntorch.set_default_device("{device}")\n'
    copy.write_text(text.replace("\nimport torch\n", f"\nimport torch\n{default}", 1))
    return copy


@dataclass(frozen=True, slots=True)
class Told:
    """What a tool said of a bug."""

    is_right: bool
    named: str
    compiles: int
    seconds: float


def told_by_ctk(bug: Bug, command: str) -> Told:
    """Run `ctk bisect-pass` or `ctk diagnose` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(bug.path), "--target", "inductor", "--json", "--out", f"{folder}/out"]
        seconds, text = run(["-c", COMMAND, command, *arguments, *bug.options], folder)
    said = json.loads(text)
    if not bug.culprit:
        return Told(said["exit_code"] == 0, said["answer"], said.get("compiles", 0), seconds)
    culprit: dict[str, Any] = said.get("culprit") or {}
    named = f"{culprit.get('stage', '')}/{culprit.get('pass', '')}" if culprit else said["answer"]
    clean_run = (said.get("repro") or {}).get("clean_run")
    lacks = [] if said.get("confirmed") else ["not confirmed"]
    lacks += [f"repro: {clean_run}"] * (command == "diagnose" and clean_run != "reproduced")
    is_right = bool(re.search(bug.culprit, named)) and not lacks
    return Told(is_right, ", ".join([named, *lacks]), said.get("compiles", 0), seconds)


def told_by_torch(bug: Bug) -> Told:
    """Run CompilerBisector in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        seconds, text = run(["-m", "benchmarks.blame", "--child", str(bug.path)], folder)
    said = json.loads(text)
    stage = bug.culprit.partition("/")[0] if bug.culprit else ""
    stages = [stage] if stage in STAGES else [each for each in STAGES if each in stage]
    is_right = any(re.search(STAGES[each], said["named"]) for each in stages)
    is_right = is_right if bug.culprit else said["named"] == "nothing"
    return Told(is_right, said["named"], said["compiles"], seconds)


def run(arguments: list[str], folder: str) -> tuple[float, str]:
    """Run Python with a cold cache; return its seconds and the document that it printed."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
    before = seconds_of_children()
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    seconds = seconds_of_children() - before
    text = done.stdout[done.stdout.find("{") :]
    if not text.strip():
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        text = json.dumps({"exit_code": done.returncode, "answer": last, "named": last[:80]})
        text = json.dumps({**json.loads(text), "compiles": 0})
    return seconds, text


def seconds_of_children() -> float:
    """Return what all processes that were started and have ended have used of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cold_seconds(bug: Bug) -> float:
    """Return what one cold compile of a program takes, imports included, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        return run(["-m", "benchmarks.blame", "--compile", str(bug.path)], folder)[0]


def bisected_by_torch(path: str) -> dict[str, object]:
    """Return what CompilerBisector names, and its compiles; in this process."""
    import torch

    from ctk.compiler.torch_compat.inductor import inductor_api as inductor

    bug, compiles = bug_of(Path(path)), 0

    def is_right() -> bool:
        nonlocal compiles
        compiles += 1
        return played_alike(bug, torch)

    found = inductor.torch_bisector()(is_right)
    if found is None:
        return {"named": "nothing", "compiles": compiles}
    named = f"{found.backend}/{found.subsystem}, {found.bisect_number}: {found.debug_info}"
    return {"named": named.splitlines()[0], "compiles": compiles}


def played_alike(bug: Bug, torch: Any) -> bool:
    """Play a program in eager and compiled, every call of it, and compare the last results."""
    torch.compiler.reset()
    eager, compiled = (outcome(bug, torch, is_compiled=each) for each in (False, True))
    if isinstance(eager, str) or isinstance(compiled, str):
        return eager == compiled
    return len(eager) == len(compiled) and all(map(agree, eager, compiled))


def outcome(bug: Bug, torch: Any, *, is_compiled: bool) -> Any:
    """Return the results of a program's last call, or the name of what it raises."""
    from ctk.toolkit.case.usercode.program import load_program

    program = load_program(str(bug.path))
    options = {**SAME_DRAWS, **program.config}
    call = torch.compile(program.model, options=options) if is_compiled else program.model
    try:
        return played(program, call, torch, backward="--backward" in bug.options)
    except Exception as error:
        return type(error).__name__


def played(program: Any, call: Any, torch: Any, *, backward: bool) -> list[Any]:
    """Make the calls of a program; return results, inputs and gradients of the last."""
    with torch.set_grad_enabled(backward):
        for warmup in getattr(program, "warmups", ()):
            call(*warmup.args) if hasattr(warmup, "args") else call(*warmup)
        if getattr(program, "between", None):
            program.between(program.model)
        torch.manual_seed(0)
        inputs = program.inputs
        outputs = flat(call(*inputs))
        if backward:
            sum(each.sum() for each in outputs if each.requires_grad).backward()
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    gradients = [each.grad for each in tensors if each.grad is not None]
    return [*outputs, *tensors, *gradients]


def agree(eager: Any, compiled: Any) -> bool:
    """Return whether two results are alike, strides included."""
    import torch

    if not isinstance(eager, torch.Tensor):
        return eager == compiled
    alike = (eager.dtype, eager.shape, eager.stride()) == (
        compiled.dtype,
        compiled.shape,
        compiled.stride(),
    )
    return alike and torch.allclose(eager, compiled, atol=1e-4, equal_nan=True)


def flat(value: Any) -> list[Any]:
    """Return a program's results as a sequence."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def main() -> None:
    """Read the command line, and do what it asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs; all if none is named")
    parser.add_argument("--diagnose", action="store_true", help="reduce and emit a repro, too")
    parser.add_argument("--device", default="cpu", help="where the programs make their tensors")
    parser.add_argument("--child", metavar="FILE")
    parser.add_argument("--plain", metavar="FILE")
    parser.add_argument("--compile", metavar="FILE")
    options = parser.parse_args()
    if options.compile:
        import torch

        outcome(bug_of(Path(options.compile)), torch, is_compiled=True)
        return
    if options.plain:
        import torch

        raise SystemExit(not played_alike(bug_of(Path(options.plain)), torch))
    if options.child:
        warnings.simplefilter("ignore")
        print(json.dumps(bisected_by_torch(options.child)))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Ask both tools about each bug; programs that are moved to another device go to a folder."""
    import torch

    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores")
    named = [path for path in FILES if is_named(path, options.names)]
    if not named:
        raise SystemExit(f"no such bug; the bugs are {', '.join(path.stem for path in FILES)}")
    if options.device != "cpu":
        named = [moved(path, options.device, folder) for path in named]
    asked = [bug_of(path) for path in named]
    print(f"one cold compile of {asked[0].name}: {cold_seconds(asked[0]):.1f} s", flush=True)
    told: dict[str, list[Told]] = {}
    for bug in asked:
        print(bug.name)
        for name, answer in answers_about(bug, with_diagnose=options.diagnose):
            told.setdefault(name, []).append(answer)
            mark = "right" if answer.is_right else "WRONG"
            cost = f"{answer.compiles:>3} compiles {answer.seconds:6.1f} s"
            print(f"  {name:<12} {mark} {cost}  {answer.named[:90]}", flush=True)
    for name, answers in told.items():
        right = sum(answer.is_right for answer in answers)
        compiles = median(answer.compiles for answer in answers)
        seconds = median(answer.seconds for answer in answers)
        line = f"{right} of {len(answers)} right, median {compiles:g} compiles, {seconds:.1f} s"
        print(f"{name:<12} {line}")


def is_named(path: Path, names: list[str]) -> bool:
    """Return whether a program is among those asked for."""
    return not names or any(name in path.stem for name in names)


def answers_about(bug: Bug, *, with_diagnose: bool) -> Iterator[tuple[str, Told]]:
    """Ask every tool about a bug."""
    commands = ("bisect-pass", "diagnose") if with_diagnose else ("bisect-pass",)
    for name in (*commands, "torch"):
        try:
            yield name, told_by_torch(bug) if name == "torch" else told_by_ctk(bug, name)
        except subprocess.TimeoutExpired:
            yield name, Told(False, f"not done after {TIMEOUT_SECONDS} s", 0, TIMEOUT_SECONDS)


if __name__ == "__main__":
    main()
