"""The private interface of torch that ctk uses, looked up in the installed torch, in seconds.

    python -m tests.repo.torch_interface                        print each name, its kind, its form
    python -m tests.repo.torch_interface --missing              print the names that torch lacks
    python -m tests.repo.torch_interface --update               write docs/torch-interface/X.Y.Z.tsv
    python -m tests.repo.torch_interface --diff 2.13.0 2.15.0   print the differences of two tables

`torch_uses.py` finds the names in `compiler/torch_compat`. A row is a name, its kind, and its
form: the signature of a function or class, the schema of an operator, the type of a value. An
attribute without a static owner (`.fw_metadata`) has the files of torch that define it. A missing
name is `-`; if the code looks first whether it is there, `- (optional)`.

It needs torch and this tree only, so it runs in a bare environment of a new release.
"""

import argparse
import contextlib
import importlib
import inspect
import re
import sys
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers.project import ROOT
from tests.repo.torch_uses import Use, uses

FOLDER = ROOT / "docs" / "torch-interface"
MISSING = "-"
OPTIONAL = "- (optional)"
NO_CUDA = "- (CPU build)"
_DEFINITIONS = re.compile(
    r"""(?:\b(?:def|class)\s+|\.|^\s*)(\w+)\s*(?::[^=\n()]*)?(?:=(?!=)|[(:]|$)|["'](\w+)["']""",
    re.MULTILINE,
)
_MOST_FILES = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A name in one version of torch; `form` is `-` if it is missing."""

    name: str
    kind: str
    form: str

    @property
    def is_missing(self) -> bool:
        """Whether the version lacks a name that the code needs, or a keyword of its calls."""
        return self.form == MISSING or " lacks " in self.form


def build_of_torch() -> str:
    """Return the version and the build of the installed torch, for the first line of a table."""
    build = f"CUDA {torch_cuda()}" if torch_cuda() else "CPU"
    return f"torch {version_of_torch()}, {build}, {sys.platform}"


def torch_cuda() -> str | None:
    """Return the version of CUDA that the installed torch was built for."""
    return importlib.import_module("torch").version.cuda


def version_of_torch() -> str:
    """Return the release of the installed torch: `2.13.0` of `2.13.0+cpu`."""
    return str(importlib.import_module("torch").__version__).partition("+")[0]


def rows() -> list[Row]:
    """Look up every name in the installed torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while its modules are imported
        return [row_of(use) for use in uses()]


def row_of(use: Use) -> Row:
    """Return the row of a name."""
    absent = OPTIONAL if use.is_optional else MISSING
    owner, _, last = use.name.rpartition(".")
    try:
        value = look_up(use.name) if owner else None
    except ImportError:
        return Row(use.name, "?", absent)
    except AttributeError as error:
        if isinstance(error.obj, type | types.ModuleType):
            is_of_cuda = last.startswith("_cuda_") and not torch_cuda()
            return Row(use.name, "?", NO_CUDA if is_of_cuda else absent)
        owner = ""  # an object that is another one while torch compiles
        value = None
    if not owner:
        found = definitions().get(last, ())
        shown = ", ".join(found[:_MOST_FILES]) if len(found) <= _MOST_FILES else "many files"
        return Row(use.name, "attribute", shown or absent)
    kind, form = kind_of(value), form_of(value)
    known = keywords_of(value) if kind in ("function", "class") else None
    unknown = sorted(use.keywords - known) if known is not None else []
    lacks = f" lacks {', '.join(unknown)}" if unknown and not use.is_optional else ""
    return Row(use.name, kind, f"{form}{lacks}")


def look_up(name: str) -> Any:
    """Return the object of a dotted name; import its modules.

    Raises:
        AttributeError, ImportError: The installed torch lacks it.
    """
    first, *parts = name.split(".")
    value: Any = importlib.import_module(first)
    path = first
    for part in parts:
        path = f"{path}.{part}"
        if isinstance(value, types.ModuleType) and not _has(value, part):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(path)
        value = getattr(value, part)
    return value


def _has(value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception:  # torch.ops of an operator that needs another build
        return False


def kind_of(value: Any) -> str:
    """Return the kind of a value, for a table."""
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    if hasattr(value, "_schema"):
        return "operator"
    return "function" if callable(value) else "value"


def form_of(value: Any) -> str:
    """Return the signature or schema of a callable, or the type of a value, without addresses."""
    if isinstance(value, types.ModuleType):
        return ""
    if hasattr(value, "_schema"):
        return str(value._schema)
    if not callable(value):
        return type(value).__name__
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return _signature_of_docstring(value)
    return f"({', '.join(_parameters(signature))})"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Yield parameters without annotations, whose text depends on the version of Python."""
    is_keyword_only = False
    for parameter in signature.parameters.values():
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            yield "*"
        is_keyword_only |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        is_given = parameter.default is not parameter.empty and not is_variadic
        yield f"{stars}{parameter.name}{_default(parameter.default) if is_given else ''}"


def _default(value: object) -> str:
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return f"={value!r}" if is_plain or value in ((), [], {}) else "=..."


def _signature_of_docstring(value: Any) -> str:
    """Return the signatures that pybind11 writes into a docstring; empty for other C functions."""
    name = getattr(value, "__name__", "")
    lines = (value.__doc__ or "").splitlines()
    found = [line.strip() for line in lines if re.match(rf"(\d+\. )?{re.escape(name)}\(.*\)", line)]
    named = [line for line in found if "*args, **kwargs" not in line]
    return re.sub(r" at 0x[0-9a-f]+", "", "; ".join(named or found))


def keywords_of(value: Any) -> set[str] | None:
    """Return the keywords that a callable takes; None if it takes all, or they are unknown."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return None if takes_all else {each.name for each in parameters}


@cache
def definitions() -> Mapping[str, tuple[str, ...]]:
    """Return the files of torch that define each attribute that is looked for.

    A definition is a function, a class, an assignment, a field, or the name as a string.
    """
    wanted = {use.name.rpartition(".")[2] for use in uses()}
    root = Path(str(importlib.import_module("torch").__file__)).parent
    found: dict[str, list[str]] = {}
    for path in sorted((*root.rglob("*.py"), *root.rglob("*.pyi"))):
        file = path.relative_to(root)
        if file.parts[0] in ("testing", "include", "test", "utils") and "_sympy" not in file.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if wanted.isdisjoint(re.findall(r"\w+", text)):
            continue
        names = {name for pair in _DEFINITIONS.findall(text) for name in pair}
        for name in wanted & names:
            found.setdefault(name, []).append(file.as_posix())
    return {name: tuple(files) for name, files in found.items()}


def write_table(table: Iterable[Row]) -> Path:
    """Write the table of the installed torch."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{version_of_torch()}.tsv"
    lines = [f"# {build_of_torch()}", *(f"{row.name}\t{row.kind}\t{row.form}" for row in table)]
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return path


def read_table(version: str) -> tuple[str, dict[str, Row]]:
    """Return the build and the rows of a committed table.

    Raises:
        FileNotFoundError: There is none of this version.
    """
    first, *lines = (FOLDER / f"{version}.tsv").read_text(encoding="utf-8").splitlines()
    cells = (f"{line}\t\t".split("\t")[:3] for line in lines)
    return first.removeprefix("# "), {row[0]: Row(*row) for row in cells}


def tables() -> list[str]:
    """Return the versions that have a table, the oldest first."""
    versions = [path.stem for path in FOLDER.glob("*.tsv")]
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def differences(old: Mapping[str, Row], new: Mapping[str, Row]) -> Iterator[str]:
    """Yield the names whose form differs between two versions, with both forms."""
    for name in sorted(old.keys() | new.keys()):
        before, after = (table[name].form if name in table else "?" for table in (old, new))
        if before != after:
            yield f"{name}\n    {before}\n    {after}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a name is missing that the code needs."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the table of this torch")
    parser.add_argument("--missing", action="store_true", help="print only the names torch lacks")
    parser.add_argument("--diff", nargs=2, metavar="VERSION", help="compare two tables")
    options = parser.parse_args(arguments)
    if options.diff:
        unknown = [version for version in options.diff if version not in tables()]
        if unknown:
            parser.error(f"no table of torch {unknown[0]}; there are {', '.join(tables())}")
        old, new = (read_table(version)[1] for version in options.diff)
        print("\n".join(differences(old, new)) or "no differences")
        return 0
    table = rows()
    missing = [row for row in table if row.is_missing]
    if options.update:
        print(f"wrote {write_table(table).relative_to(ROOT)}")
    else:
        files = {use.name: ", ".join(sorted(use.files)) for use in uses()}
        for row in missing if options.missing else table:
            print(f"{files[row.name]} | {row.name} | {row.kind} | {row.form}")
    print(f"{build_of_torch()}: {len(table)} names, {len(missing)} missing", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
