"""What no file of the project may hold, and how large it may be."""

import ast
import re

from tests.helpers.project import PACKAGES, ROOT, name_of, project_files, python_files, tree_of

MAX_FILE_LINES = 500
MAX_CLASS_LINES = 300
MAX_FUNCTION_LINES = 60
TEXT_SUFFIXES = {
    "", ".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".j2", ".cfg", ".ini", ".sh",
    ".diff",
}  # fmt: skip

# Written in two pieces, so that this file does not hold what it forbids.
MACHINE_PATHS = re.compile(
    "|".join(
        (
            r"(?<![\w.~/])/ro" r"ot/",
            r"(?<![\w.~/])/ho" r"me/(?!(?:user|you|me|someone2?|alice|bob|jo|john)\b)\w",
            r"(?<![\w.~/])/wo" r"rk/",
            r"(?<![\w.~/])/Us" r"ers/(?!(?:user|you|me|someone2?|alice|bob|jo|john)\b)\w",
            r"(?<![\w.~/])/opt/py" r"pi",
        )
    )
)
REGISTRY_HOSTS = re.compile(
    "|".join(
        (
            r"py" r"pi\.org",
            r"python" r"hosted\.org",
            r"download\.py" r"torch\.org",
            r"--(?:extra-)?index" r"-url",
        )
    )
)


def text_files() -> list[tuple[str, str]]:
    files = (path for path in project_files() if path.suffix in TEXT_SUFFIXES)
    return [(name_of(path), path.read_text(encoding="utf-8", errors="replace")) for path in files]


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_patterns_can_find_something() -> None:
    assert MACHINE_PATHS.search("open('/ro" + "ot/x')")
    assert MACHINE_PATHS.search("/ho" + "me/karl/x")
    assert not MACHINE_PATHS.search("~/ro" + "ot/x")
    assert REGISTRY_HOSTS.search("https://py" + "pi.org/simple")


def test_no_paths_of_a_machine() -> None:
    assert not lines_that_match(MACHINE_PATHS)


def test_no_registry_hosts() -> None:
    assert not lines_that_match(REGISTRY_HOSTS)


def test_files_are_short() -> None:
    sizes = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*PACKAGES, "tests", "examples", "benchmarks")
    }
    assert not {name: size for name, size in sizes.items() if size > MAX_FILE_LINES}


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long


def test_classes_are_short() -> None:
    long = [
        f"{name_of(path)}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MAX_CLASS_LINES
    ]
    assert not long


def test_dataclasses_are_slotted() -> None:
    """Data is frozen and slotted; what is mutable at least has slots."""
    loose = [
        f"{name_of(path)}:{node.lineno}: {node.name}"
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        for mark in node.decorator_list
        if "dataclass" in ast.unparse(mark) and "slots=True" not in ast.unparse(mark)
    ]
    assert not loose


def test_no_bare_except() -> None:
    bare = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files(*PACKAGES, "tests", "examples", "benchmarks")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not bare


def test_no_pickle() -> None:
    """A stranger's dump is opened without running their code.

    What torch itself writes is a pickle: tensors may be read from it, and nothing else.
    """
    forbidden = re.compile(
        r"\bimport (?:pickle|marshal|dill|cloudpickle)\b|\btorch\.save\("
        r"|\btorch\.load\((?!.*\bweights_only=True\b)"
    )
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in python_files(*PACKAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert not found


CODES = re.compile(r":\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[\w,\s-]+\]")


def test_suppressions_say_why() -> None:
    """`# noqa: X` and `# type: ignore[x]` stand with a reason: `# noqa: X  # because …`."""
    pattern = re.compile(r"#\s*(?:noqa|type:\s*ignore|pyright:\s*ignore)(?P<rest>.*)$")
    missing = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in python_files(*PACKAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := pattern.search(line))
        and len(CODES.sub("", found["rest"], count=1).strip(" #-")) < 8
    ]
    assert not missing


def test_root_is_the_project() -> None:
    assert (ROOT / "pyproject.toml").is_file()
