"""`ctk verify-rules`: its exit codes."""

from ctk.toolkit.cli.commands import verify_rules
from ctk.toolkit.cli.shell.answer import ExitCode

PLANTED = "tests/planted/rules/minus_zero.py"


def test_a_refuted_rule_is_a_failure(tmp_path):
    answer = verify_rules.verify_rules([PLANTED], draws=60, out=tmp_path)
    assert answer.exit_code is ExitCode.FAILURE
    assert answer.data["rules"][0]["kind"] == "value"
    assert (tmp_path / "minus_zero-0" / "counter_example.py").is_file()


def test_a_module_without_rules_tells_nothing():
    answer = verify_rules.verify_rules(["json"], draws=1)
    assert answer.exit_code is ExitCode.CANNOT_TELL
