"""ctk: name the guilty pass, rewrite, kernel and node of a wrong compile, with a small repro.

The public face. Importing it costs nothing: torch and the rest load when a name is first used.

What is wrong with a compile of mine?
    check           compare every step of the compile with eager
    bisect          the guilty pass, rewrite or kernel, and the proof
    minify          the smallest graph that fails for the same reason, with its repro
    diagnose        all of it, in one folder
    repro           does it still fail?
    diff            two compiles of one program, step by step
Are my rewrite rules right?
    verify_rules    try them on drawn graphs and operands
What do I have?
    load_case       a case folder that somebody gave me
    minimize        any graph, any predicate: the smallest graph for which it says yes
While a program runs
    debug_compile   a Dynamo backend that watches another one
    install         watch every torch.compile from now on
The pipeline
    compile_fx      compile a graph with the `ctk` backend
    Config, patch   its options
    freeze          make the parameters of an inference graph constants
    fw_compiler_freezing
                    compile an inference graph with its parameters as constants
Ahead of time
    aot_compile     a model as a package, which needs no compiler
    write_package   several entry points in one package
    compile_fx_aot  a captured graph as a package
    load            open a package, and call it
    aoti_compile_with_persistent_cache
                    an operator as a package, for the arguments of one call; kept, found again
    find_operator_package, load_operator_packages
                    the package that fits a call; all packages of an operator
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctk.compiler.errors import CtkError
    from ctk.compiler.freezing.call import fw_compiler_freezing
    from ctk.compiler.freezing.freeze import freeze
    from ctk.compiler.options.config import Config, patch
    from ctk.compiler.packages.operators.operator_package import (
        aoti_compile_with_persistent_cache,
        find_operator_package,
        load_operator_packages,
    )
    from ctk.compiler.packages.package import load
    from ctk.compiler.packages.write import aot_compile, compile_fx_aot, write_package
    from ctk.compiler.pipeline import compile_fx
    from ctk.toolkit.case.case import Case
    from ctk.toolkit.case.judgement import Verdict
    from ctk.toolkit.case.store import load_case, save_case
    from ctk.toolkit.operations.bisect import bisect
    from ctk.toolkit.operations.check import CheckReport, check
    from ctk.toolkit.operations.diagnose import diagnose
    from ctk.toolkit.operations.diff import diff
    from ctk.toolkit.operations.minify import minify
    from ctk.toolkit.operations.minimize import minimize
    from ctk.toolkit.operations.repro import repro
    from ctk.toolkit.verify_rules.verify import verify_rules
    from ctk.toolkit.watch.hooks import debug_compile, install

__all__ = [
    "Case",
    "CheckReport",
    "Config",
    "CtkError",
    "Verdict",
    "aot_compile",
    "aoti_compile_with_persistent_cache",
    "bisect",
    "check",
    "compile_fx",
    "compile_fx_aot",
    "debug_compile",
    "diagnose",
    "diff",
    "find_operator_package",
    "freeze",
    "fw_compiler_freezing",
    "install",
    "load",
    "load_case",
    "load_operator_packages",
    "minify",
    "minimize",
    "patch",
    "repro",
    "save_case",
    "verify_rules",
    "write_package",
]

_PLACES = {
    "Case": "ctk.toolkit.case.case",
    "CheckReport": "ctk.toolkit.operations.check",
    "Config": "ctk.compiler.options.config",
    "CtkError": "ctk.compiler.errors",
    "Verdict": "ctk.toolkit.case.judgement",
    "aot_compile": "ctk.compiler.packages.write",
    "aoti_compile_with_persistent_cache": "ctk.compiler.packages.operators.operator_package",
    "bisect": "ctk.toolkit.operations.bisect",
    "check": "ctk.toolkit.operations.check",
    "compile_fx": "ctk.compiler.pipeline",
    "compile_fx_aot": "ctk.compiler.packages.write",
    "debug_compile": "ctk.toolkit.watch.hooks",
    "diagnose": "ctk.toolkit.operations.diagnose",
    "diff": "ctk.toolkit.operations.diff",
    "find_operator_package": "ctk.compiler.packages.operators.operator_package",
    "freeze": "ctk.compiler.freezing.freeze",
    "fw_compiler_freezing": "ctk.compiler.freezing.call",
    "install": "ctk.toolkit.watch.hooks",
    "load": "ctk.compiler.packages.package",
    "load_case": "ctk.toolkit.case.store",
    "load_operator_packages": "ctk.compiler.packages.operators.operator_package",
    "minify": "ctk.toolkit.operations.minify",
    "minimize": "ctk.toolkit.operations.minimize",
    "patch": "ctk.compiler.options.config",
    "repro": "ctk.toolkit.operations.repro",
    "save_case": "ctk.toolkit.case.store",
    "verify_rules": "ctk.toolkit.verify_rules.verify",
    "write_package": "ctk.compiler.packages.write",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'ctk' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
