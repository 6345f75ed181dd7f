"""The public names of ctk, each with the module that defines it.

This stub is the one list: `ctk/__init__.py` reads it when a name is first used.
"""

from ctk.compiler.errors import CtkError as CtkError
from ctk.compiler.errors import WrongCompile as WrongCompile
from ctk.compiler.freezing.call import fw_compiler_freezing as fw_compiler_freezing
from ctk.compiler.freezing.freeze import freeze as freeze
from ctk.compiler.observe import Observer as Observer
from ctk.compiler.options.config import Config as Config
from ctk.compiler.options.config import patch as patch
from ctk.compiler.packages.operators.operator_package import (
    aoti_compile_with_persistent_cache as aoti_compile_with_persistent_cache,
)
from ctk.compiler.packages.operators.operator_package import (
    find_operator_package as find_operator_package,
)
from ctk.compiler.packages.operators.operator_package import (
    load_operator_packages as load_operator_packages,
)
from ctk.compiler.packages.package import load as load
from ctk.compiler.packages.write import aot_compile as aot_compile
from ctk.compiler.packages.write import compile_fx_aot as compile_fx_aot
from ctk.compiler.packages.write import write_package as write_package
from ctk.compiler.pipeline import compile_fx as compile_fx
from ctk.compiler.pipeline import compile_fx_inner as compile_fx_inner
from ctk.compiler.rewriting.base import Pass as Pass
from ctk.compiler.rewriting.rewriter import Rewriter as Rewriter
from ctk.toolkit.bug_report.bug_report import bug_report as bug_report
from ctk.toolkit.bug_report.issue_text import BugReport as BugReport
from ctk.toolkit.case.case import Case as Case
from ctk.toolkit.case.judgement import Verdict as Verdict
from ctk.toolkit.case.store import load_case as load_case
from ctk.toolkit.compile_log.recorder import Recorder as Recorder
from ctk.toolkit.compile_log.recorder import Veto as Veto
from ctk.toolkit.operations.bisect import bisect as bisect
from ctk.toolkit.operations.check import CheckReport as CheckReport
from ctk.toolkit.operations.check import check as check
from ctk.toolkit.operations.diagnose import diagnose as diagnose
from ctk.toolkit.operations.diff import Side as Side
from ctk.toolkit.operations.diff import diff as diff
from ctk.toolkit.operations.minify import minify as minify
from ctk.toolkit.operations.minimize import minimize as minimize
from ctk.toolkit.operations.report.diagnosis import Diagnosis as Diagnosis
from ctk.toolkit.operations.repro import repro as repro
from ctk.toolkit.operations.save_case import save_case as save_case
from ctk.toolkit.testing.assertion import assert_compiles as assert_compiles
from ctk.toolkit.verify_rules.verify import verify_rules as verify_rules
from ctk.toolkit.watch.hooks import debug_compile as debug_compile
from ctk.toolkit.watch.hooks import install as install
