"""Compiles until the culprit is named: ctk against torch's CompilerBisector, on bugs of Inductor.

The programs are those of `tests/planted/inductor` (bugs of torch 2.13.0 on the CPU). Both tools run
in one process each, on the same program; ctk's count includes the confirming compile.

    python -m benchmarks.bisect_vs_torch [--child ctk|torch FILE]
"""

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path

FILES = sorted((Path(__file__).parent.parent / "tests" / "planted" / "inductor").glob("*.py"))
TOOLS = ("ctk", "torch")
SAME_DRAWS = {"fallback_random": True}  # else no random program could ever agree with eager


def with_ctk(path: str) -> dict[str, object]:
    """Return what ctk names, and its compiles and seconds."""
    from ctk.toolkit.bisect import find_culprit
    from ctk.toolkit.importers.program import capture_cases
    from ctk.toolkit.usercode.program import load_program

    (case,) = capture_cases(load_program(path), target="inductor")
    started = time.perf_counter()
    search = find_culprit(case)
    seconds = time.perf_counter() - started
    culprit = search.culprit
    named = f"{culprit.where}, rewrite {culprit.rewrite}" if culprit else "nothing"
    return {"named": named, "compiles": search.compiles, "seconds": seconds}


def with_torch(path: str) -> dict[str, object]:
    """Return what CompilerBisector names, and its compiles and seconds."""
    import torch

    from ctk.compiler.torch_compat import inductor
    from ctk.toolkit.usercode.program import load_program

    program = load_program(path)
    compiles = 0

    def copies():
        return tuple(value.clone() for value in program.inputs)

    def is_right() -> bool:
        nonlocal compiles
        compiles += 1
        torch.compiler.reset()
        with torch.no_grad():
            torch.manual_seed(0)
            expected = program.model(*copies())
            torch.manual_seed(0)
            try:
                result = torch.compile(program.model, options=SAME_DRAWS)(*copies())
            except Exception:
                return False
        return all(
            torch.allclose(a, b, atol=1e-4)
            for a, b in zip(flat(result), flat(expected), strict=True)
        )

    started = time.perf_counter()
    found = inductor.torch_bisector()(is_right)
    seconds = time.perf_counter() - started
    named = f"{found.backend}/{found.subsystem}, {found.bisect_number}: {found.debug_info}"
    return {"named": named.splitlines()[0], "compiles": compiles, "seconds": seconds}


def flat(value):
    """Return a program's results as a sequence."""
    return value if isinstance(value, (tuple, list)) else (value,)


def main() -> None:
    """Run both tools on each program, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=2, metavar=("TOOL", "FILE"))
    options = parser.parse_args()
    if options.child:
        warnings.simplefilter("ignore")
        tool, path = options.child
        print(json.dumps((with_ctk if tool == "ctk" else with_torch)(path)))
        return
    import torch

    print(f"torch {torch.__version__}, {platform.machine()}")
    for path in FILES:
        print(path.stem)
        for tool in TOOLS:
            command = [
                sys.executable,
                "-m",
                "benchmarks.bisect_vs_torch",
                "--child",
                tool,
                str(path),
            ]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                print(f"  {tool:<6} failed: {run.stderr.strip().splitlines()[-1]}")
                continue
            found = json.loads(run.stdout.splitlines()[-1])
            cost = f"{found['compiles']:>3} compiles {found['seconds']:6.1f} s"
            print(f"  {tool:<6} {cost}  {found['named']}")


if __name__ == "__main__":
    main()
