"""The rooms of the house, bottom to top, and who imports whom.

A room is a folder, or one file where the folder above it has no room for it (`compiler/errors.py`).
It imports only rooms that stand before it in `ROOMS`. Every import counts: those at the top of a
file, those inside functions, those under `if TYPE_CHECKING` (marked, because they cost nothing when
the program runs, but a reader follows them all the same), and module names written as strings
(`import_module("ctk.x")`, tables of lazily loaded names).

What this does not do: judge imports within a room, or imports of other people's packages.

`python -m tests.repo.rooms` prints rooms, files, lines, arrows, circles and upward imports.
"""

import ast
import graphlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.helpers.project import PACKAGES, ROOT, name_of, python_files, tree_of


@dataclass(frozen=True, slots=True)
class Room:
    """A folder or a file, what it is for, and the rooms below it that it must not know either."""

    path: str
    purpose: str
    apart: tuple[str, ...] = ()


ROOMS = (
    Room("compiler/__init__.py", "The compiler as a package: imports nothing."),
    Room(
        "compiler/torch_compat",
        "The only place that touches torch's private names, each with its versions.",
    ),
    Room("compiler/errors.py", "Every exception of ctk."),
    Room("compiler/observe.py", "What a pipeline tells the outside: the Observer and its records."),
    Room("compiler/usercode/process_name.py", "Name a process so that no other has the name."),
    Room("compiler/options/choices.py", "The words that options and variables may take."),
    Room("compiler/fx", "FX graphs: walk, copy, compare, rebuild, describe, print; knows no pass."),
    Room("compiler/usercode/python_files.py", "Run a Python file; its neighbours can be imported."),
    Room("compiler/error_place.py", "Write on an exception where it was raised."),
    Room("repro_templates", "What emitted scripts carry, and the toolkit judges by: torch only."),
    Room(
        "compiler/usercode/references.py",
        "Functions that users name: `module:function`, `file.py:function`.",
    ),
    Room("compiler/options/environment.py", "The `CTK_*` variables, read in one place."),
    Room(
        "compiler/cache_folder",
        "The folder of the persistent cache: where it is, if it is safe, and small notes in it.",
    ),
    Room("compiler/options/config.py", "Every option of the pipeline, immutable."),
    Room(
        "compiler/partition",
        "A joint graph becomes forward and backward: what is saved, what is computed again.",
    ),
    Room(
        "compiler/rewriting",
        "The pass contract: Pass, Rewriter, numbering, fuel, running and verifying.",
    ),
    Room("compiler/patterns", "Rules as data, and a matcher over ATen graphs that applies them."),
    Room(
        "compiler/passes",
        "The passes of each stage, in the order in which they run and are bisected.",
    ),
    Room("compiler/dispatch/decomposition_table.py", "Which operators dispatch takes apart, and why."),
    Room(
        "compiler/dispatch/decompositions.py",
        "Decompositions as passes of the stage `dispatch`: named, and left out.",
    ),
    Room(
        "compiler/dispatch/fake_kernels.py",
        "What operators say of their results before they run, as passes of `dispatch`.",
    ),
    Room(
        "compiler/lowering",
        "A functional graph as kernels of a loop IR and calls of the library: lowered, fused.",
    ),
    Room(
        "compiler/runtime",
        "What a compiled graph is as data, and what runs it: no compiler is needed for that.",
    ),
    Room("compiler/dispatch/autograd.py", "Autograd: from a captured graph to functional ATen graphs."),
    Room(
        "compiler/freezing",
        "The parameters of an inference graph as constants, and their originals.",
    ),
    Room(
        "compiler/codegen", "Code generation: the table of generators, and the choice among them."
    ),
    Room(
        "compiler/artifacts",
        "What a compile made, as files: packages, and the entries of the persistent cache.",
    ),
    Room("compiler/resilience.py", "What happens when a stage fails: fall back, warn or raise."),
    Room("compiler/pipeline.py", "The stages of one compile, in order: the page to read first."),
    Room("compiler/ahead_of_time", "Models and exported programs become packages."),
    Room("compiler/backend.py", "The Dynamo backend `ctk`."),
    Room("toolkit/__init__.py", "The toolkit as a package: imports nothing."),
    Room(
        "toolkit/processes",
        "Child processes: start, supervise, find and end them, and what they leave behind.",
    ),
    Room(
        "toolkit/case/formats", "Files on disk: checked JSON, atomic folders, tensors; knows no graph."
    ),
    Room(
        "toolkit/case/usercode", "The user's own code: program files, names of functions, source files."
    ),
    Room(
        "toolkit/case/trust", "Trust: what a stranger's case would run, import or set, and what is safe."
    ),
    Room("toolkit/case/graphs", "A graph as JSON, as Python and as lines, and what it may call."),
    Room("toolkit/case", "One failure on disk: the value, its signature, its folder."),
    Room("toolkit/targets", "What can be put under test: our targets, and every Dynamo backend."),
    Room("toolkit/execution", "Run a case: eager, in float64, compiled; always on copies."),
    Room("toolkit/importers", "From anything that users have to cases."),
    Room(
        "toolkit/compile_log",
        "What one observed compile did, step by step, and the check of each step.",
    ),
    Room("toolkit/repro", "The runnable script of a case: emitted, run and verified."),
    Room(
        "toolkit/reduce_program",
        "The reducer of programs: the smallest file that still fails, and its repro.",
    ),
    Room(
        "toolkit/end_to_end",
        "The user's own eager call against the user's own compiled call; which layer differs.",
    ),
    Room("toolkit/oracle", "Oracles: does this case still fail, and in the same way?"),
    Room("toolkit/reduce", "The reducer: the smallest case that fails in the same way."),
    Room(
        "toolkit/bisect",
        "Which pass, rewrite or kernel causes a failure, and the proof.",
        apart=("toolkit/reduce",),
    ),
    Room(
        "toolkit/watch",
        "Compiles watched as a program runs: hooks, dumps, first calls.",
        apart=("toolkit/reduce", "toolkit/bisect"),
    ),
    Room("toolkit/operations/command", "A command that compiles, run again with other passes left out."),
    Room("toolkit/operations/report", "What a diagnosis looks like, as JSON and as text."),
    Room(
        "toolkit/operations/session",
        "The folder of an operation, on disk as it grows: begun, gone on with, survived.",
    ),
    Room(
        "toolkit/verify_rules",
        "Rules and passes tried by a machine: drawn graphs before and after, what differs.",
    ),
    Room("toolkit/operations/check.py", "The operation `check` of the library."),
    Room("toolkit/operations/times.py", "What is slow in a compile, by stage and pass."),
    Room(
        "toolkit/operations/compile_package",
        "The operation `compile`: programs become the entry points of a package.",
    ),
    Room("toolkit/operations/repro.py", "The operation `repro` of the library: does it still fail?"),
    Room("toolkit/operations/diff.py", "The operation `diff`: two compiles of one case, step by step."),
    Room("toolkit/operations/minimize.py", "The operation `minimize`: any graph, any predicate."),
    Room("toolkit/operations/bisect.py", "The operation `bisect`: who causes the failure."),
    Room("toolkit/operations/minify.py", "The operation `minify`: a failing compile, made small."),
    Room("toolkit/operations/diagnose.py", "The operation `diagnose`: bisect, minify, emit a repro."),
    Room(
        "toolkit/operations/cache.py",
        "The operation `cache`: what the cache on disk holds, and what it missed.",
    ),
    Room(
        "toolkit/operations/cache_subject.py", "The operation `cache` on a program: are its graphs in there?"
    ),
    Room("toolkit/operations/doctor.py", "The operation `doctor`: is this machine ready?"),
    Room(
        "ctk/__init__.py", "The public face: every name that users import, loaded when first used."
    ),
    Room("toolkit/cli", "The `ctk` command: one file per command, and the table of them."),
)


@dataclass(frozen=True, slots=True)
class Arrow:
    """One import from a room to another, and whether only a type checker sees it."""

    source: Path
    line: int
    target: Path
    typing_only: bool

    def __str__(self) -> str:
        mark = "  [TYPE_CHECKING]" if self.typing_only else ""
        return f"{name_of(self.source)}:{self.line} -> {name_of(self.target)}{mark}"


def room_of(path: Path) -> Room | None:
    """Return the innermost room that a file stands in."""
    name = name_of(path)
    holding = [room for room in ROOMS if name == room.path or name.startswith(f"{room.path}/")]
    return max(holding, key=lambda room: len(room.path), default=None)


@cache
def house() -> tuple[Path, ...]:
    """Return every Python file of the packages."""
    return tuple(python_files("ctk", *PACKAGES))


@cache
def modules() -> dict[str, Path]:
    """Return each file of the house under the name that it is imported by."""
    found: dict[str, Path] = {}
    for path in house():
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts if parts[0] == "ctk" else ("ctk", *parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def module_of(name: str) -> Path | None:
    """Return the file that a dotted name leads to: `ctk.compiler.options.config.Config` is in config.py."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return modules().get(name)


def named_modules(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that one syntax node imports; `package` is where it stands."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")
        base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        start = ".".join(part for part in (base, node.module) if part)
        yield from (f"{start}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.partition(":")[0]
        if name.startswith("ctk.") and name in modules():
            yield name


def is_type_checking(node: ast.AST) -> bool:
    """Return whether a syntax node is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports_of(tree: ast.AST, package: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, dotted name and "only for types" of every import in a tree, however deep."""
    todo = [(tree, False)]
    while todo:
        node, typing_only = todo.pop()
        yield from ((node.lineno, name, typing_only) for name in named_modules(node, package))
        inner = is_type_checking(node)
        orelse = node.orelse if isinstance(node, ast.If) else []
        for child in ast.iter_child_nodes(node):
            todo.append((child, typing_only or (inner and child not in orelse)))


@cache
def arrows() -> tuple[Arrow, ...]:
    """Return every import from one room to another, in the order of the files."""
    found: set[Arrow] = set()
    for name, path in modules().items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        for line, imported, typing_only in imports_of(tree_of(path), package):
            target = module_of(imported)
            if target and room_of(target) is not room_of(path):
                found.add(Arrow(path, line, target, typing_only))
    return tuple(sorted(found, key=lambda arrow: (arrow.source, arrow.line, arrow.target)))


def floor_of(path: Path) -> int:
    """Return the place in `ROOMS` of the room that a file stands in."""
    room = room_of(path)
    assert room is not None, f"{name_of(path)} stands in no room"
    return ROOMS.index(room)


def is_upward(arrow: Arrow) -> bool:
    """Return whether an import leads to a room above, or to one to be kept apart."""
    source, target = floor_of(arrow.source), floor_of(arrow.target)
    return target > source or ROOMS[target].path in ROOMS[source].apart


def circle(among: Iterable[Arrow]) -> list[str]:
    """Return the rooms of one circle, or nothing."""
    below: dict[str, set[str]] = {room.path: set() for room in ROOMS}
    for arrow in among:
        source, target = floor_of(arrow.source), floor_of(arrow.target)
        below[ROOMS[source].path].add(ROOMS[target].path)
    try:
        graphlib.TopologicalSorter(below).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def table() -> Iterator[str]:
    """Yield one line per room, top to bottom: its size, how many rooms it knows and know it."""
    pairs = {(floor_of(arrow.source), floor_of(arrow.target)) for arrow in arrows()}
    down = Counter(source for source, _ in pairs)
    up = Counter(target for _, target in pairs)
    yield f"{'room':26}{'files':>6}{'lines':>7}{'knows':>6}{'known':>6}  purpose"
    files = 0
    lines = 0
    for floor in reversed(range(len(ROOMS))):
        room = ROOMS[floor]
        own = [path for path in house() if room_of(path) is room]
        size = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in own)
        files, lines = files + len(own), lines + size
        counts = f"{len(own):6}{size:7}{down[floor]:6}{up[floor]:6}"
        yield f"{room.path:26}{counts}  {room.purpose}"
    yield f"{'total':26}{files:6}{lines:7}{len(pairs):6} arrows between rooms"


def drawing() -> Iterator[str]:
    """Yield one line per room, top to bottom, as docs/architecture.md shows them."""
    for room in reversed(ROOMS):
        if not room.path.endswith("__init__.py") or room.path.startswith("ctk"):
            yield f"{room.path:24} {room.purpose}"


def main() -> None:
    """Print the house; `--drawing` prints what docs/architecture.md shows."""
    if "--drawing" in sys.argv:
        print("\n".join(drawing()))
        return
    print("\n".join(table()))
    upward = [arrow for arrow in arrows() if is_upward(arrow)]
    print(f"\ncircles: {' -> '.join(circle(arrows())) or 'none'}")
    print(f"upward imports: {len(upward) or 'none'}")
    print("\n".join(f"  {arrow}" for arrow in upward))


if __name__ == "__main__":
    main()
