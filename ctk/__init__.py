"""ctk: find the guilty pass, rewrite, kernel and node of a wrong compile, with a small repro.

`import ctk` loads neither torch nor the toolkit; a name loads its module when it is first used.
`__init__.pyi` beside this file lists each public name with its module.

Debug a compile
    check           compare every step of the compile with eager
    bisect          find the guilty pass, rewrite or kernel, with the proof
    minify          find the smallest graph that fails for the same reason, with its repro
    diagnose        do all of this, in one folder (a `Diagnosis`)
    repro           run a case again
    bug_report      write a failure as an issue for PyTorch (a `BugReport`)
    assert_compiles fail a test whose function compiles wrongly, by a `WrongCompile`
    diff            compare two compiles of one program (each a `Side`), step by step
    minimize        find the smallest graph for which a predicate holds
    Case, load_case, save_case
                    one failure, as a value and as a folder; `save_case(model, args)` in an except
Debug a running program
    debug_compile   a Dynamo backend that watches another one
    install         watch every torch.compile from now on
Write and test passes
    Pass, Rewriter  the contract of a pass, and the only way in which it changes a graph
    Observer        the interface that receives every event of a compile
    Recorder, Veto  keep the events of a compile; leave out passes, rewrites or kernels
    verify_rules    try rewrite rules on drawn graphs and operands
Compile
    compile_fx      compile a graph with the `ctk` backend
    compile_fx_inner
                    compile a functional graph: the default `inner_compile` of `compile_fx`
    Config, patch   its options
    freeze          make the parameters of an inference graph constants
    fw_compiler_freezing
                    compile an inference graph with its parameters as constants
Compile ahead of time
    aot_compile     compile a model to a package, which needs no compiler
    write_package   write several entry points into one package
    compile_fx_aot  compile a captured graph to a package
    load            open a package
    aoti_compile_with_persistent_cache
                    compile an operator to a package for the arguments of one call, and keep it
    find_operator_package, load_operator_packages
                    the package that fits a call; all packages of an operator
"""

from functools import cache
from importlib import import_module
from pathlib import Path

_FOLDER = Path(__file__).parent
if not (_FOLDER / "compiler").is_dir():
    # A checkout without symbolic links (zip, Windows, sdist): the packages stand beside `ctk/`.
    __path__.append(str(_FOLDER.parent))


@cache
def _modules() -> dict[str, str]:
    """Return the module of each public name, as the stub lists them."""
    import ast

    stub = ast.parse((_FOLDER / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(_modules())
    if name.startswith("__") or name not in _modules():
        raise AttributeError(f"module 'ctk' has no attribute {name!r}")
    return getattr(import_module(_modules()[name]), name)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*_modules()})
