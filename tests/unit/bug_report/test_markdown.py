"""Foreign text in Markdown stays text."""

import pytest

from ctk.toolkit.bug_report.markdown import LOG_LINES, code, cut_log, fence, table

HOSTILE = "```\n</details><script>alert(1)</script>\n@everyone ~~~~\x1b[2K\u202e"


@pytest.mark.parametrize("text", ["plain", "```", "a ````` b", HOSTILE, ""])
def test_a_fence_is_closed_by_its_own_marks_only(text: str) -> None:
    opening, *inner, closing = fence(text, "python").split("\n")
    assert opening == f"{closing}python" and set(closing) == {"`"} and len(closing) >= 3
    assert not any(line.strip().startswith(closing) for line in inner)


def test_control_characters_are_escaped() -> None:
    assert "\x1b" not in fence(HOSTILE) and "\u202e" not in fence(HOSTILE)
    assert "\n" not in code(HOSTILE) and "\\x1b" in code(HOSTILE)


@pytest.mark.parametrize(
    ("text", "span"), [("a", "`a`"), ("`a`", "`` `a` ``"), ("a``b", "```a``b```"), ("", "` `")]
)
def test_a_code_span_has_more_backticks_than_its_text(text: str, span: str) -> None:
    assert code(text) == span


def test_a_cell_stays_one_cell() -> None:
    *_, row = table(("a", "b"), [("x|y", "")]).split("\n")
    assert row == "| `x\\|y` |  |"


def test_a_long_log_keeps_its_ends_and_its_errors() -> None:
    lines = [f"line {number}" for number in range(1000)]
    lines[500] = "file.cpp:12: error: no such name"
    cut = cut_log("\n".join(lines)).split("\n")
    assert len(cut) <= LOG_LINES + 1
    assert cut[0] == "line 0" and cut[-1] == "line 999"
    assert "file.cpp:12: error: no such name" in cut
    assert any("lines left out" in line for line in cut)


def test_warnings_of_a_cpp_compiler_are_left_out() -> None:
    log = "a.h:243:25: warning: overflow\n  243 |  0xff\n      |  ^~~~\na.cpp:1: error: bad\n"
    assert cut_log(log) == "a.cpp:1: error: bad"
