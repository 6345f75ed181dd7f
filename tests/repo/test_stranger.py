"""A stranger adds one of each thing to a copy of the project: one new file, one line in a table.

`Stranger.add` does the adding and holds it to that: a file that was not there, and in the table's
file one entry and the import that it needs. Then the thing is used from end to end, by commands in
processes of their own that import the copy.
"""

import json
from pathlib import Path

import pytest

from tests.helpers.stranger import PROGRAM, Stranger, added_lines, with_entry
from tests.helpers.warm_python import warm_python


def test_an_entry_is_one_line() -> None:
    text = '"""Doc."""\n\nfrom a import b\n\nTABLE: tuple[int, ...] = (b.X,)\n'
    changed = with_entry(text, "TABLE", "c.X", "from a import c")
    assert added_lines(text, changed) == [
        "+ from a import c",
        "+ TABLE: tuple[int, ...] = (c.X, b.X,)",
    ]


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path)


PASS = '''
"""Replace relu(x) by x + offset: wrong unless the offset is never wanted."""

from dataclasses import dataclass

import torch

from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten


@dataclass(frozen=True)
class SpoilRelu(Pass):
    """Replace relu(x) by relu(x) + offset.

    Attributes:
        offset: What is added; 0 leaves the graph alone.
    """

    name = "spoil_relu"
    offset: float = 1.0

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if node.target is aten.tanh.default and self.offset:
                def edit(_, node=node):
                    wrong = rewriter.insert(
                        aten.add.Tensor, (node.args[0], self.offset), before=node
                    )
                    node.args = (wrong,)
                rewriter.rewrite("tanh(x) -> tanh(x + offset)", [node], edit)


PASS = SpoilRelu()
'''


@pytest.mark.slow
def test_a_pass_with_an_option(stranger: Stranger) -> None:
    stranger.add(
        "compiler/passes/joint/spoil_relu.py",
        PASS,
        table="compiler/passes/__init__.py",
        name="JOINT",
        entry="PASS",
    )
    said = stranger.diagnose("program.py")
    assert (said["culprit"]["stage"], said["culprit"]["pass"]) == ("joint", "spoil_relu")
    assert said["confirmed"] is True
    stranger.ctk("check", "program.py", "--config", "spoil_relu.offset=0.0", code=0)
    wrong = stranger.run(
        warm_python().with_name("ctk"), "check", "program.py", "--config", "spoil_relu.ofset=0.0"
    )
    assert wrong.returncode == 2
    assert "did you mean" in wrong.stderr and "offset" in wrong.stderr


RULE = '''
"""A rule: relu(relu(x)) -> x, which is wrong."""

import torch

from ctk.compiler.patterns import Op, Rule, Var

aten = torch.ops.aten

RULE = Rule(
    "relu(relu(x)) -> x",
    Op(aten.relu.default, (Op(aten.relu.default, (Var("x"),)),)),
    lambda rewriter, match: match.node("x"),
)
'''


def test_a_rule(stranger: Stranger) -> None:
    stranger.add(
        "compiler/patterns/relu_of_relu.py",
        RULE,
        table="compiler/passes/joint/simplify_views.py",
        name="RULES",
        entry="RULE",
    )
    stranger.write("program.py", PROGRAM.replace(".relu()", ".relu().relu()"))
    said = stranger.diagnose("program.py")
    assert (said["culprit"]["stage"], said["culprit"]["pass"]) == ("joint", "simplify_views")
    assert "relu(relu(x)) -> x" in json.dumps(said["culprit"])


STEP = '''
"""Turn float64 inputs into float32, all at once."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposal, Step, ladder_of_edits


@dataclass(frozen=True, slots=True)
class AsFloat32:
    """Give every float64 input in float32."""

    def apply(self, case: Case, facts: Facts) -> Case | None:
        """Return the case with other inputs."""
        inputs = tuple(x.float() if is_double(x) else x for x in case.inputs)
        return dataclasses.replace(case, inputs=inputs)


def is_double(value: object) -> bool:
    """Return whether a value is a float64 tensor."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose float32 where there is something else."""
    return [ladder_of_edits(AsFloat32())] if any(map(is_double, case.inputs)) else []


STEP = Step("as_float32", propose)
'''

WRONG = """
import torch

def compile(gm, example_inputs, options=None):
    has_relu = any("relu" in str(node.target) for node in gm.graph.nodes)
    def run(*args):
        results = gm(*args)
        return tuple(value + 1 if has_relu else value for value in results)
    return run
"""


def test_a_step_that_changes_a_dtype(stranger: Stranger) -> None:
    stranger.add(
        "toolkit/reduce/steps/as_float32.py",
        STEP,
        table="toolkit/reduce/steps/__init__.py",
        name="STEPS",
        entry="STEP",
    )
    stranger.write("wrong.py", WRONG)
    double = PROGRAM.replace("12).reshape(3, 4)", "12, dtype=torch.float64).reshape(3, 4)")
    stranger.write("program.py", double)
    stranger.diagnose("program.py", "--target", "wrong.py:compile")
    inputs = (stranger.place / "found" / "minimal" / "inputs.json").read_text()
    assert "float32" in inputs and "float64" not in inputs


TARGET = '''
"""The target `shifted`: runs the graph as it is, and is wrong by one where there is a relu."""

from collections.abc import Mapping, Sequence

from torch.fx import GraphModule

from ctk.compiler.errors import ConfigError
from ctk.compiler.observe import Observer
from ctk.toolkit.targets.base import Compiled, Target


class Shifted(Target):
    """Adds 1 to the results of a graph with a relu; takes no options."""

    name = "shifted"

    def compile(
        self,
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        config: Mapping[str, object],
        observer: Observer | None,
    ) -> Compiled:
        """Compile one captured graph."""
        has_relu = any("relu" in str(node.target) for node in gm.graph.nodes)

        def run(*args):
            return tuple(value + 1 if has_relu else value for value in gm(*args))

        return run


TARGET = Shifted()
'''


def test_a_target(stranger: Stranger) -> None:
    stranger.add(
        "toolkit/targets/shifted.py",
        TARGET,
        table="toolkit/targets/__init__.py",
        name="TARGETS",
        entry="TARGET",
    )
    said = stranger.diagnose("program.py", "--target", "shifted")
    assert said["call_nodes"]["after"] == 1
    stranger.write("right.py", PROGRAM.replace(".relu()", ""))
    stranger.ctk("check", "right.py", "--target", "shifted", code=0)


CODEGEN = '''
"""The code generator `each_node`: one kernel per node, and that of relu is wrong."""

from collections.abc import Sequence

import torch
from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, as_boxed
from ctk.compiler.codegen.kernels import Codegen, KernelContext


def compile_each(
    gm: GraphModule, example_inputs: Sequence[object], context: KernelContext
) -> BoxedCallable:
    """Compile every call of a graph to a kernel of its own."""
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    kernels = {}
    for node in calls:
        kernel = context.kernel(node.name, nodes=(node.name,))
        is_wrong = node.target is torch.ops.aten.relu.default and not kernel.vetoed

        def run(args, kwargs, node=node, is_wrong=is_wrong):
            value = node.target(*args, **kwargs)
            return (value + 1 if is_wrong else value,)

        kernels[node.name] = kernel.made(run, source=node.format_node, results=(node.name,))

    class Each(torch.fx.Interpreter):
        def run_node(self, n):
            if n.op != "call_function":
                return super().run_node(n)
            return kernels[n.name](*self.fetch_args_kwargs_from_env(n))[0]

    def run_all(args):
        values = list(args)
        args.clear()
        return Each(gm).run(*values)

    return as_boxed(run_all, lambda: "each node on its own")


CODEGEN = Codegen("each_node", compile_each)
'''


@pytest.mark.slow
def test_a_code_generator(stranger: Stranger) -> None:
    stranger.add(
        "compiler/codegen/each_node.py",
        CODEGEN,
        table="compiler/codegen/__init__.py",
        name="CODEGENS",
        entry="CODEGEN",
    )
    said = stranger.diagnose("program.py", "--config", "codegen=each_node")
    assert said["culprit"]["pass"].endswith("each_node:forward.relu"), said["culprit"]
    assert said["culprit"]["kind"] == "kernel"
    assert said["confirmed"] is True


LOWERING = '''
"""Lowerings of complex analysis, for real numbers."""

import math
from collections.abc import Callable, Mapping

import torch

from ctk.compiler.lowering.arrays import Array, apply, filled, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.promotion import operand, promoted


def _angle(_: Builder, x: Array) -> Array:
    """Return pi for negative numbers, 0 for others, NaN for NaN."""
    wide = operand(x, promoted([x], to_float=True))
    return where(apply("isnan", wide), wide, where(wide < 0, filled(wide, math.pi), 0.0))


TABLE: Mapping[object, Callable[..., Array]] = {torch.ops.aten.angle.default: _angle}
'''


def test_a_lowering(stranger: Stranger) -> None:
    """`angle` is a library call before, and part of a kernel in C after."""
    stranger.write("program.py", PROGRAM.replace(".tanh()", ".angle()"))
    before = stranger.ctk("show", "program.py", "--kernels", code=0)
    assert not any("angle" in each["nodes"] for each in before["kernels"])
    stranger.add(
        "compiler/lowering/operators/complex_numbers.py",
        LOWERING,
        table="compiler/lowering/operators/__init__.py",
        name="TABLES",
        entry="TABLE",
    )
    after = stranger.ctk("show", "program.py", "--kernels", code=0)
    (kernel,) = [each for each in after["kernels"] if "angle" in each["nodes"]]
    assert {"relu", "angle", "sum_1"} <= set(kernel["nodes"])
    assert "3.14" in kernel["source"]
    stranger.ctk("check", "program.py", code=0)


IMPORTER = '''
"""Import `FILE.formula`: one line of Python over a vector x."""

from pathlib import Path

import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.importers.base import Importer
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.importers.in_memory import Call


class Formula(Importer):
    """A file with a formula."""

    form = "FILE.formula"

    @staticmethod
    def accepts(spec: str) -> bool:
        return spec.endswith(".formula")

    def cases(self, request: CaseOptions) -> list[Case]:
        formula = eval(f"lambda x: {Path(self.text).read_text()}", {"torch": torch})
        return Call(formula, (torch.linspace(-1, 1, 8),)).cases(request)


IMPORTER = Formula
'''


def test_an_importer(stranger: Stranger) -> None:
    stranger.add(
        "toolkit/importers/formula.py",
        IMPORTER,
        table="toolkit/importers/__init__.py",
        name="IMPORTERS",
        entry="IMPORTER",
    )
    stranger.write("wrong.py", WRONG)
    stranger.write("net.formula", "(x + 1).relu().tanh()")
    stranger.ctk("check", "net.formula", code=0)
    said = stranger.diagnose("net.formula", "--target", "wrong.py:compile")
    assert said["call_nodes"]["after"] == 1


COMMAND = '''
"""`ctk count`: how many calls the graphs of a program have."""

from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.options import SubjectArgument
from ctk.toolkit.cli.shell.command_context import Command


def count(subject: SubjectArgument) -> Answer:
    """Count the calls of each graph."""
    from ctk.toolkit.importers import load_cases

    cases = load_cases(subject)
    calls = sum(node.op.startswith("call") for case in cases for node in case.graph.graph.nodes)
    return Answer(ExitCode.NO_FAILURE, f"{calls} calls", {"calls": calls})


COMMAND = Command("count", count)
'''


def test_a_command(stranger: Stranger) -> None:
    stranger.add(
        "toolkit/cli/commands/count.py",
        COMMAND,
        table="toolkit/cli/app.py",
        name="COMMANDS",
        entry="COMMAND",
    )
    assert stranger.ctk("count", "program.py", code=0)["calls"] == 5
    helped = stranger.run(warm_python().with_name("ctk"), "--help")
    assert "Count the calls of each graph." in helped.stdout
