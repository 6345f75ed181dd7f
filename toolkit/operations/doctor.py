"""Checks of `ctk doctor`: is this machine ready to compile, watch and dump?

Each check returns a `Health` and raises nothing. The checks write only temporary files.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import cast

from ctk.compiler.errors import StorageError, message_of
from ctk.compiler.torch_compat.versions import (
    NEWEST_TESTED,
    NEWEST_TESTED_PYTHON,
    OLDEST_PYTHON,
    OLDEST_SUPPORTED,
    has_gil,
    is_supported,
    is_supported_python,
    is_tested,
    is_tested_python,
)
from ctk.toolkit.case.formats.files import (
    existing_folder,
    free_nbytes,
    temporary_folder,
    write_text,
)
from ctk.toolkit.releases.installed_files import check_files

PACKAGES = ("ctk", "numpy", "typer", "rich", "safetensors", "pydantic", "filelock", "jinja2")
COMPARED = ("torch", "triton", "ctk")
MINIMUM_FREE_NBYTES = 512 << 20
TORCH_ADVICE = (
    'install torch, or correct TORCH_LOGS and the like, until `python -c "import torch"` works'
)
_NAMES = {"Darwin": "macOS"}
REASON_LENGTH = 200
"""Most characters of torch's reason: it lists each setting that it knows."""

SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
"""Variables that make `torch.compile` do nothing at all."""

CPP_SOURCE = (
    '#include <cmath>\n#include <vector>\nextern "C" double f(double x) { return std::exp(x); }\n'
)


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of one check.

    Attributes:
        is_fine: Whether ctk can work on this machine.
        advice: The next step, unless it is fine.
    """

    name: str
    is_fine: bool
    detail: str
    advice: str = ""


def examine() -> list[Health]:
    """Run every check, in order; a check that itself fails is a problem found.

    Without torch the later ones are left out: an import that has failed must not be tried again.
    """
    found: list[Health] = []
    for name, check in CHECKS:
        try:
            found.append(check(name))
        except Exception as error:  # of a damaged package, of any type
            detail = f"{type(error).__name__}: {error}".splitlines()[0]
            found.append(Health(name, False, detail))
        if check is check_torch and "torch" not in sys.modules:
            break
    return found


def check_python(name: str) -> Health:
    """Look at the interpreter and the platform."""
    system, version = platform.system(), platform.python_version()
    detail = f"{version} on {system} {platform.machine()}"
    detail += f"; tested: {OLDEST_PYTHON} to {NEWEST_TESTED_PYTHON}"
    if not is_tested_python(version):
        detail += ", so not this one"
    if not has_gil():
        detail += "; free-threaded, which is untested"
    if system != "Linux":
        detail += f"; untested: no test has run on {_NAMES.get(system, system)}"
    if system == "Windows":
        return Health(name, False, detail, "use WSL or Linux for commands that compile")
    is_fine = is_supported_python(version) and has_gil()
    advice = f"install Python {OLDEST_PYTHON} or newer, with the global interpreter lock"
    return Health(name, is_fine, detail, advice)


def check_packages(name: str) -> Health:
    """Look for the installed distributions."""
    found = {package: _version_of(package) for package in PACKAGES}
    missing = [package for package, version in found.items() if version is None]
    detail = ", ".join(f"{package} {version or 'missing'}" for package, version in found.items())
    return Health(name, not missing, detail, f"pip install {' '.join(missing)}")


def check_torch(name: str) -> Health:
    """Check that ctk supports the installed torch, and that it can be imported."""
    version = _version_of("torch")
    advice = f"ctk needs torch >= {OLDEST_SUPPORTED}: pip install 'torch>={OLDEST_SUPPORTED}'"
    if version is None:
        return Health(name, False, "missing", advice)
    try:
        import_module("torch")
    except Exception as error:  # a wrong TORCH_LOGS, a library that is not there
        why = " ".join(message_of(error).split())[:REASON_LENGTH]
        detail = f"{version} cannot be imported: {type(error).__name__}: {why}"
        return Health(name, False, detail, TORCH_ADVICE)
    tested = f"tested: {OLDEST_SUPPORTED} to {NEWEST_TESTED}"
    detail = f"{version}; {tested}{'' if is_tested(version) else ', so not this one'}"
    return Health(name, is_supported(version), detail, advice)


def check_installed_files(name: str) -> Health:
    """Compare the files of torch, triton and ctk with the records of their installation."""
    found = [each for package in COMPARED if (each := check_files(package)) is not None]
    changed = [each.name for each in found if each.problems]
    pins = " ".join(each.replace(" ", "==").partition("+")[0] for each in changed)
    advice = (
        "verdicts hold for the changed files, not for the release; "
        f"pip install --force-reinstall --no-deps {pins}"
    )
    return Health(name, not changed, "; ".join(map(str, found)), advice if changed else "")


def check_entry_point(name: str) -> Health:
    """Look whether `torch.compile(backend="ctk")` will find the backend."""
    entries = metadata.entry_points(group="torch_dynamo_backends", name="ctk")
    if not entries:
        advice = "reinstall ctk: pip install --force-reinstall --no-deps ctk"
        return Health(name, False, "no entry point `ctk` in torch_dynamo_backends", advice)
    backend = next(iter(entries)).load()
    return Health(name, callable(backend), f"ctk -> {next(iter(entries)).value}")


def check_switches(name: str) -> Health:
    """Look for variables under which nothing is compiled."""
    active = [switch for switch in SWITCHES if os.environ.get(switch, "0") not in ("", "0")]
    if not active:
        return Health(name, True, "on")
    return Health(name, False, f"off by {', '.join(active)}", f"unset {' '.join(active)}")


def check_pipeline(name: str) -> Health:
    """Compile a small graph with the `ctk` pipeline and compare it with eager."""
    import torch
    from torch.fx import symbolic_trace

    from ctk.compiler.options.config import Config
    from ctk.compiler.pipeline import compile_fx

    def program(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.relu(x * 2 + 1).sum(dim=-1),)

    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    compiled = compile_fx(symbolic_trace(program), [x], config=Config(cache=False))
    (result,), (expected,) = cast("tuple[torch.Tensor]", compiled(x)), program(x)
    is_equal = torch.allclose(result, expected)
    detail = "a small graph compiles and agrees with eager" if is_equal else "compiled != eager"
    return Health(name, is_equal, detail, "" if is_equal else "run the tests: make test")


def check_cpp_compiler(name: str) -> Health:
    """Look for the C++ compiler that Inductor would use on the CPU, and compile a file with it."""
    from ctk.compiler.torch_compat.inductor import inductor_api as inductor

    compiler = inductor.cpp_compiler()
    advice = (
        "install g++ or clang++, or set CXX; without it --target inductor cannot work on the CPU"
    )
    if compiler is None:
        return Health(name, False, "none found", advice)
    with temporary_folder("ctk-doctor-") as folder:
        source = folder / "probe.cpp"
        write_text(source, CPP_SOURCE)
        command = [compiler, "-shared", "-fPIC", "-o", f"{folder}/probe.so", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[0]
        return Health(name, False, f"{compiler} fails: {said}", advice)
    return Health(name, True, shutil.which(compiler) or compiler)


def check_variables(name: str) -> Health:
    """Look whether the `CTK_*` variables that are set are known and valid."""
    from ctk.compiler.options.environment import (
        VARIABLES,
        cache_settings,
        misspelt,
        read_environment,
    )

    strangers = misspelt(os.environ)
    if strangers:
        return Health(name, False, "; ".join(strangers), "correct or unset them")
    read_environment()
    cache_settings()
    values = [f"{key}={os.environ[key]}" for key in VARIABLES if os.environ.get(key)]
    return Health(name, True, " ".join(values) or "none set")


def check_dump_folder(name: str) -> Health:
    """Look whether a dump can be written, and whether the disk has room for it."""
    from ctk.toolkit.watch.watch_session import dump_folder

    folder = dump_folder().resolve()
    free = free_nbytes(folder)
    detail = f"{folder}, {free / (1 << 30):.1f} GiB free"
    try:
        with tempfile.TemporaryFile(dir=existing_folder(folder)):
            pass
    except OSError as error:
        advice = "set CTK_DUMP to a folder that you may write to"
        return Health(name, False, f"{detail}: {error.strerror}", advice)
    if free < MINIMUM_FREE_NBYTES:
        return Health(name, False, detail, "free some space, or set CTK_DUMP to another disk")
    return Health(name, True, detail)


def check_cache_folder(name: str) -> Health:
    """Check that the folder of the persistent cache may be used; a missing one passes."""
    from ctk.compiler.cache_folder.folder import private_folder
    from ctk.compiler.options.environment import cache_settings

    settings = cache_settings()
    if settings.folder is None:
        return Health(name, False, "this user has no home", "set CTK_CACHE_DIR to a folder")
    if settings.is_on is False or not settings.folder.exists():
        is_off = settings.is_on is False
        return Health(name, True, "off (CTK_CACHE=0)" if is_off else f"{settings.folder}, empty")
    try:
        return Health(name, True, str(private_folder(settings.folder)))
    except StorageError as error:
        problem, _, advice = str(error).partition("; next: ")
        return Health(name, False, problem, advice)


def check_accelerator(name: str) -> Health:
    """Say which accelerator torch sees; none is fine."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about old drivers here
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = sorted({torch.cuda.get_device_name(index) for index in range(count)})
    return Health(name, True, f"{count} x {', '.join(names)}" if count else "none (CPU only)")


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


CHECKS: tuple[tuple[str, Callable[[str], Health]], ...] = (
    ("python", check_python),
    ("packages", check_packages),
    ("installed files", check_installed_files),  # also of a torch that cannot be imported
    ("torch", check_torch),
    ("torch.compile", check_switches),
    ("backend ctk", check_entry_point),
    ("pipeline", check_pipeline),
    ("C++ compiler", check_cpp_compiler),
    ("accelerator", check_accelerator),
    ("CTK_ variables", check_variables),
    ("dump folder", check_dump_folder),
    ("cache folder", check_cache_folder),
)
