"""The reducer of programs: what it drops, what it keeps, and that it never slips."""

import textwrap

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.program.program_edits import inline_variables
from ctk.toolkit.reduce.program.statement_search import reduce_program
from ctk.toolkit.reduce.program.syntax import is_readable, parse_program, text_of
from ctk.toolkit.reduce.progress import Budget

REPRODUCES = Judgement(Verdict.REPRODUCES, Signature("accuracy"))
PASSES = Judgement(Verdict.PASSES)


class Asked:
    """An oracle that wants some words in the text; it counts, and keeps what it was asked."""

    def __init__(self, *words):
        self.words, self.texts = words, []

    def __call__(self, text):
        self.texts.append(text)
        return REPRODUCES if all(word in text for word in self.words) else PASSES


def small(text, *words, **limits):
    asked = Asked(*words)
    return reduce_program(textwrap.dedent(text), asked, Budget(**limits)), asked


LONG = """
    import os
    import torch
    UNUSED = 3

    def helper(x):
        return x + 1

    def model():
        def f(x, y):
            a = helper(x)
            b = torch.fix(a.sin(), out=None) * 2 + y
            if x.sum() > 0:
                print("large")
            for i in range(16):
                b = b.relu(i)
            return b
        return f

    def inputs():
        return torch.randn(64, 64), torch.randn(64, 64)
"""


def test_what_the_failure_does_not_need_is_dropped():
    found, _ = small(LONG, "torch.fix", "def model", "def inputs", "return f")
    assert "helper" not in found.text and "print" not in found.text and "os" not in found.text
    assert "for" not in found.text and "64" not in found.text
    assert found.statements_after < 8 < found.statements_before
    assert found.finished


def test_the_result_is_the_same_each_time_and_each_candidate_is_asked_once():
    one, asked = small(LONG, "torch.fix", "def model", "def inputs")
    other, _ = small(LONG, "torch.fix", "def model", "def inputs")
    assert one == other
    assert len(asked.texts) == len(set(asked.texts)) == one.questions


def test_a_second_reduction_finds_nothing_more():
    words = ("torch.fix", "def model", "def inputs")
    once, _ = small(LONG, *words)
    twice, _ = small(once.text, *words)
    assert twice.text == once.text


def test_a_candidate_that_fails_otherwise_is_not_taken():
    def ask(text):
        if "keep()" in text:
            return REPRODUCES
        return Judgement(Verdict.DIFFERENT, Signature("runtime-error", "NameError"))

    found = reduce_program("import torch\nx = 1\nprint(keep())\ndef keep(): pass\n", ask)
    assert "keep()" in found.text and "import torch" not in found.text


def test_a_program_with_a_name_that_nothing_binds_is_not_asked_about():
    found, asked = small("import torch\nx = torch.ones(1)\ny = x\n", "x = torch")
    assert all("import torch" in text for text in asked.texts if "torch.ones" in text)
    assert "y" not in found.text


def test_limits_end_the_search_with_the_best_so_far():
    found, asked = small(LONG, "torch.fix", "def model", "def inputs", questions=3)
    assert not found.finished and len(asked.texts) == 3 == found.questions


def test_a_time_limit_keeps_the_best_so_far_and_names_what_is_left():
    words = "torch.fix", "def model", "def inputs"
    found, asked = small(LONG, *words, graph_end=0.0)
    assert (found.left, asked.texts) == (("statements", "expressions"), [])
    found, _ = small(LONG, *words, detail_end=0.0)
    assert found.left == ("expressions",) and not found.finished
    assert "UNUSED" not in found.text and ".sin()" in found.text


def test_what_is_left_knows_its_lines():
    found, _ = small("import os\nimport torch\n\nA = 1\nB = torch.ones(4)\n", "B = torch")
    assert (found.lines[1, 0], found.lines[2, 0]) == (2, 5)


def test_a_module_becomes_a_function_and_its_unused_inputs_go():
    text = """
        import torch
        class M(torch.nn.Module):
            def forward(self, x, unused):
                return x.fix()
        def model():
            return M().eval()
        def inputs():
            return torch.ones(1), torch.ones(4)
    """
    found, _ = small(text, "x.fix()", "def model", "def inputs", "torch.ones(1")
    assert "class" not in found.text and "eval" not in found.text
    assert "unused" not in found.text and found.text.count("torch.ones") == 1


def test_a_function_that_only_returns_an_expression_is_put_where_it_is_called():
    text = "def double(x):\n    return x * 2\ndef f(y):\n    return wrong(double(y) + 1)\n"
    texts = [text_of(edit()) for edit in inline_variables(parse_program(text))]
    assert texts == ["def f(y):\n    return wrong(y * 2 + 1)\n"]


def test_a_loop_becomes_its_body_once_and_a_variable_its_value():
    text = """
        def f(xs):
            for x in xs:
                y = wrong(x)
                z = y
            return z
        def wrong(x):
            return x
    """
    found, _ = small(text, " = wrong(x", "def f", "xs")
    assert "for x" not in found.text and "y" not in found.text


def test_names_that_patterns_and_star_imports_bind_are_bound():
    """Else no candidate of such a program were asked about, and nothing dropped."""
    text = """
        def f(x):
            match x:
                case [first, *rest]:
                    return first, rest
                case {"k": value, **more}:
                    return value, more
    """
    assert is_readable(parse_program(textwrap.dedent(text)))
    assert is_readable(parse_program("from torch import *\ny = sin"))
    assert not is_readable(parse_program("y = sin"))
