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
    Room("compiler/__init__.py", "The compiler package: imports nothing."),
    Room(
        "compiler/records.py",
        "Frozen dataclasses and tagged values as JSON: one declaration for both directions.",
    ),
    Room(
        "compiler/torch_compat",
        "All uses of private torch names, by area of torch.",
    ),
    Room("compiler/errors.py", "Every exception of ctk."),
    Room(
        "compiler/posix.py",
        "The parts of POSIX that Windows lacks: a substitute where there is one, else a refusal.",
    ),
    Room(
        "compiler/installed_torch.py",
        "The installed torch: whether tests ran on it, and the private names that it lacks.",
    ),
    Room(
        "compiler/observe.py",
        "The interface between a compile and its observers: Observer and its records.",
    ),
    Room("compiler/phases.py", "The clock of a compile: the seconds of each phase."),
    Room("compiler/fx", "FX graphs: walk, copy, compare, rebuild, describe, print; knows no pass."),
    Room("compiler/error_place.py", "Record on an exception where in the compile it was raised."),
    Room("compiler/usercode", "Functions and files that users name: resolve, import and run them."),
    Room(
        "compiler/options",
        "Options of the pipeline: the Config, the `CTK_*` variables, the allowed words.",
    ),
    Room(
        "compiler/cache_folder",
        "The folder of the persistent cache: its location, its safety, small notes in it.",
    ),
    Room(
        "compiler/partition",
        "Split a joint graph into forward and backward: values to save, values to recompute.",
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
    Room(
        "compiler/dispatch",
        "Autograd and decompositions: from a captured graph to functional ATen graphs.",
    ),
    Room("compiler/sizes", "Integer algebra of index expressions and symbolic sizes."),
    Room(
        "compiler/runtime",
        "Compiled graphs as data, and the code that runs them without a compiler.",
    ),
    Room(
        "compiler/lowering",
        "Lower a functional graph to kernels of a loop IR and library calls, and fuse them.",
    ),
    Room(
        "compiler/codegen", "Code generation: the table of generators, and the choice among them."
    ),
    Room(
        "compiler/freezing",
        "Freeze an inference graph: parameters become constants, originals are discarded.",
    ),
    Room("compiler/artifacts", "Sealed files and the machine that they were made for."),
    Room("compiler/cache", "The persistent cache of whole graphs: keys, entries, store."),
    Room("compiler/resilience.py", "The failure policy of a stage: fall back, warn or raise."),
    Room("compiler/pipeline.py", "The stages of one compile, in order: the page to read first."),
    Room(
        "compiler/packages",
        "Packages: models and operators compiled ahead of time, for Python and C programs.",
    ),
    Room("compiler/backend.py", "The Dynamo backend `ctk`."),
    Room(
        "repro_templates",
        "The runtime library of emitted scripts: compare, run and judge; needs torch only.",
    ),
    Room(
        "repro_templates/numbers",
        "Compare numbers: errors, tolerances, layouts, float64 references.",
    ),
    Room("repro_templates/graph", "Run a graph in eager and compiled, and print a verdict."),
    Room(
        "repro_templates/program",
        "Run a user's program in eager and compiled, and compare its calls.",
    ),
    Room("toolkit/__init__.py", "The toolkit package: imports nothing."),
    Room("toolkit/options.py", "Options of the operations: of the library and the command line."),
    Room(
        "toolkit/search", "Block and boundary searches over abstract candidates, in few questions."
    ),
    Room("toolkit/processes", "Child processes: start, supervise, find and end them."),
    Room("toolkit/case", "Cases: one failure as a value and as a folder."),
    Room("toolkit/targets", "Compilers under test: the targets of ctk, and every Dynamo backend."),
    Room(
        "toolkit/execution",
        "Run a case or a program: eager, in float64, compiled; always on copies.",
    ),
    Room("toolkit/importers", "Import programs, archives, scripts and tests as cases."),
    Room(
        "toolkit/compile_log",
        "Record one observed compile step by step, and check each step against eager.",
    ),
    Room(
        "toolkit/page",
        "Pages for the browser: one HTML file of a verdict, a graph, steps and plots.",
    ),
    Room("toolkit/repro", "Repro scripts: emit, run and verify them."),
    Room(
        "toolkit/releases",
        "Ask one script of several releases of torch or Triton, each in an environment of its own.",
    ),
    Room(
        "toolkit/end_to_end",
        "Compare the user's eager call with the compiled call; find the layer that differs.",
    ),
    Room("toolkit/oracle", "Oracles: judge whether a case still fails, and in the same way."),
    Room(
        "toolkit/reduce",
        "The reducer: search for the smallest case or program with the same failure.",
    ),
    Room(
        "toolkit/bisect",
        "Bisection: the pass, rewrite or kernel that causes a failure, and the proof.",
        apart=("toolkit/reduce",),
    ),
    Room(
        "toolkit/watch",
        "Watch the compiles of a running program: hooks, dumps, first calls.",
        apart=(
            "toolkit/reduce",
            "toolkit/bisect",
        ),
    ),
    Room(
        "toolkit/verify_rules",
        "Verify rewrite rules and passes on drawn graphs, before against after.",
    ),
    Room(
        "toolkit/operations",
        "The operations of the library: check, bisect, minify, diagnose, diff, repro, cache.",
    ),
    Room("toolkit/bug_report", "The failure of a diagnosis as an issue for PyTorch."),
    Room(
        "toolkit/ci",
        "Continuous integration: outcomes of tests, reports for CI systems, and baselines.",
    ),
    Room("toolkit/testing", "Tests of users: the pytest plugin, and `assert_compiles`."),
    Room(
        "ctk/__init__.py",
        "The public interface: every name that users import, loaded on first use.",
    ),
    Room("toolkit/cli", "The `ctk` command: commands, and the shell around them."),
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
    """Return the file of a dotted name: `ctk.compiler.errors.CtkError` is in errors.py."""
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


def tree_with_stub(path: Path) -> ast.Module:
    """Return the syntax tree of a file, followed by that of its stub (`ctk/__init__.pyi`)."""
    tree, stub = tree_of(path), path.with_suffix(".pyi")
    return ast.Module([*tree.body, *tree_of(stub).body], []) if stub.exists() else tree


@cache
def arrows() -> tuple[Arrow, ...]:
    """Return every import from one room to another, in the order of the files."""
    found: set[Arrow] = set()
    for name, path in modules().items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        for line, imported, typing_only in imports_of(tree_with_stub(path), package):
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


def wings() -> Iterator[str]:
    """Yield one line per package: its rooms, floors and arrows, each counted once per pair."""
    pairs = {(floor_of(arrow.source), floor_of(arrow.target)) for arrow in arrows()}
    yield f"{'wing':26}{'rooms':>6}{'floors':>7}{'arrows':>7}"
    for top in ("compiler", "repro_templates", "toolkit", ""):
        own = [n for n, room in enumerate(ROOMS) if room.path.startswith(top)]
        inner = {(source, target) for source, target in pairs if {source, target} <= {*own}}
        floors: dict[int, int] = {}
        for number in own:
            below = [floors[target] for source, target in inner if source == number]
            floors[number] = 1 + max(below, default=0)
        yield f"{top or 'whole':26}{len(own):6}{max(floors.values()):7}{len(inner):7}"


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
    print()
    print("\n".join(wings()))
    upward = [arrow for arrow in arrows() if is_upward(arrow)]
    print(f"\ncircles: {' -> '.join(circle(arrows())) or 'none'}")
    print(f"upward imports: {len(upward) or 'none'}")
    print("\n".join(f"  {arrow}" for arrow in upward))


if __name__ == "__main__":
    main()
