"""The versions that an interpreter has: of Python, torch and Triton."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.processes.commands import describe_exit, run_command_group

_PROBE = r"""
import importlib.metadata, json, pathlib, platform, re
from importlib.util import find_spec

def version_of(*names):
    for name in names:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "", ""

found = find_spec("torch")
file = pathlib.Path(found.origin).with_name("version.py") if found and found.origin else None
text = file.read_text() if file and file.is_file() else ""
commit = re.search(r"^git_version\b[^=\n]*=\s*['\"](\w+)", text, re.M)
names = "triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm"
package, triton = version_of(*names)
print(json.dumps({
    "python": platform.python_version(),
    "torch": version_of("torch")[1],
    "commit": commit[1] if commit else "",
    "triton": triton,
    "triton_package": package,
}))
"""
_PROBE_SECONDS = 60.0


@document
@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of an interpreter; an empty text for a package that it does not have.

    Attributes:
        commit: The commit of pytorch from which its torch was built.
        triton_package: The package that brings Triton: `triton`, `pytorch-triton`.
    """

    python: str
    torch: str
    commit: str
    triton: str
    triton_package: str


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that can be asked.

    Attributes:
        overlay: A folder of packages that stand before those of the interpreter.
    """

    python: Path
    overlay: Path | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Variables by which it finds its own packages, and those of no other interpreter."""
        path = os.pathsep.join([str(self.python.parent), os.environ.get("PATH", os.defpath)])
        return {
            "PATH": path,
            "PYTHONPATH": str(self.overlay or ""),
            "PYTHONNOUSERSITE": "1",
            "PYTHONSAFEPATH": "1",
            "VIRTUAL_ENV": "",
        }


def find_interpreter(text: str) -> Interpreter:
    """Return the interpreter that a user names: its file, or the folder of its environment.

    Raises:
        ConfigError: There is none.
    """
    path = Path(text).expanduser()
    path = path / "bin" / "python" if path.is_dir() else path
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ConfigError(f"--python {text}: there is no program {path}")
    return Interpreter(path.absolute())  # a link to the base interpreter is an environment


def read_versions(interpreter: Interpreter, seconds: float | None = None) -> Versions:
    """Return the versions of an interpreter; torch is not imported.

    Args:
        seconds: Limit of the caller; there is one in any case.

    Raises:
        ConfigError: It does not run, or is not Python.
    """
    words = [str(interpreter.python), "-c", _PROBE]
    environ = {**os.environ, **interpreter.variables}
    environ.pop("PYTHONHOME", None)
    limit = min(seconds or _PROBE_SECONDS, _PROBE_SECONDS)
    done = run_command_group(words, seconds=limit, environ=environ)
    try:
        return Versions(**json.loads(done.output.splitlines()[-1]))
    except (IndexError, TypeError, ValueError) as error:
        ended = f"no end within {limit:g} s" if done.code is None else describe_exit(done.code)
        raise ConfigError(
            f"{interpreter.python} does not print its versions ({ended}); next: check that it is "
            "an interpreter of Python 3 and runs"
        ) from error


def this_python() -> str:
    """Return the short name of this Python: `py3.11`."""
    return f"py{sys.version_info.major}.{sys.version_info.minor}"
