"""A regression test in the style of torch's own test files, from the parts of the short script.

It fails today, and passes without a compiler: with a correct one it will pass as well.
"""

import importlib.util
import re
from collections.abc import Iterator

from ctk.toolkit.bug_report.labels import Naming
from ctk.toolkit.bug_report.script_check import CheckedScript, check_script
from ctk.toolkit.bug_report.short_script import (
    HANG_SECONDS,
    ShortProgram,
    exception_name,
)

NEEDS = "expecttest"
"""The package that torch's test classes import."""


def regression_test(program: ShortProgram, naming: Naming, words: tuple[str, ...]) -> CheckedScript:
    """Return the test of a short program, run in a clean process.

    Args:
        words: For the name of the test.
    """
    text = test_text(program, naming.owner, words)
    if importlib.util.find_spec(NEEDS) is None:
        why = f"not run: torch's test classes need {NEEDS} (pip install {NEEDS})"
        return CheckedScript(text, why=why)
    return check_script(text, program.signature, is_test=True)


def test_text(program: ShortProgram, owner: str, words: tuple[str, ...]) -> str:
    """Return the text of a test."""
    module = "torch._dynamo.test_case" if owner == "module: dynamo" else "torch._inductor.test_case"
    is_timed = program.signature.kind == "timeout"
    tested = f"from {module} import run_tests, TestCase"
    head = program.head(("import faulthandler",) * is_timed, tested)
    name = re.sub(r"\W+", "_", "_".join((*words, program.signature.kind))).strip("_").lower()
    body = [*program.prepare, *program.loop]
    inside = "    " if program.loop else ""
    body += [f"{inside}{line}" for line in _check(program)]
    indented = "\n".join(f"        {line}" for each in body for line in each.split("\n"))
    parts = (
        f'# Owner(s): ["{owner}"]\n\n{head}',
        program.text,
        program.run,
        f"class TestRegression(TestCase):\n    def test_{name}(self):\n{indented}",
        'if __name__ == "__main__":\n    run_tests()',
    )
    return "\n\n\n".join(filter(None, parts)) + "\n"


def _check(program: ShortProgram) -> Iterator[str]:
    kind = program.signature.kind
    if kind == "missing-error":
        yield f"with self.assertRaises({exception_name(program.signature)}):"
        yield f"    {program.compiled}"
        return
    yield f"expected = {program.eager}"
    if kind == "timeout":
        yield f"faulthandler.dump_traceback_later({HANG_SECONDS}, exit=True)"
    yield f"actual = {program.compiled}"
    if kind == "timeout":
        yield "faulthandler.cancel_dump_traceback_later()"
    strides = ", exact_stride=True" * (kind == "stride")
    yield f"self.assertEqual(actual, expected{strides})"
