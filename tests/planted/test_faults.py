"""One wrong step in each corner of our pipeline: named exactly, and confirmed. No reduction here.

The faults are `faults/passes.py`; those of dispatch, partition and kernels are planted below.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ctk.compiler.partition import split
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.toolkit.bisect import Search, find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.per_node_codegen import per_node

aten = torch.ops.aten
PASSES = Path(__file__).parent / "faults" / "passes.py"


class Block(nn.Module):
    """Trained: its gradients go through gelu, tanh, sigmoid and sums."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x)) * torch.sigmoid(x) + x
        return nn.functional.gelu(self.second(x)).abs().sqrt()


def pure(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Called without gradients; each operator stands once, in a branch of its own."""
    a = torch.softmax(x, -1) + torch.matmul(x, y) - torch.sub(y, x).tanh()
    b = torch.sin(-x) + torch.exp(x * 0.5) + torch.where(x > 0, y, x * 3)
    c = torch.clamp(x, -0.2, 0.3) + torch.add(x, y, alpha=2) + torch.maximum(x, y)
    d = x**3 + x.mean(0) + x.mean(1) + (y * 3).floor() + torch.flip(x, [0])
    e = (x * x + 1).sqrt() * (x < 0.1) + x.abs() + (x * x + 2).log()
    return a, b, c, d, e


def damped(x: Tensor, y: Tensor) -> Tensor:
    """What each branch gives is far below the tolerance of the result."""
    small = torch.exp(x) + (y * y + 1).sqrt() + torch.sub(y, x)
    return x * 3 + y + small * 1e-10


class Damped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x)) * 1e-10


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def drawn(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return tuple(torch.randn(shape) for shape in shapes)


def case_of(model: Callable[..., object], inputs: tuple[Tensor, ...], **options: object) -> Case:
    backward = bool(options.pop("backward", False))
    program = UserProgram(model, inputs, options, "planted", Path(__file__))
    (case,) = capture_cases(program, backward=backward)
    return case


def seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def trained(backward: bool = True, **options: object) -> Case:
    return case_of(seeded(Block), drawn((4, 6)), backward=backward, **options)


def called(**options: object) -> Case:
    return case_of(pure, drawn((6, 6), (6, 6)), **options)


def hidden(**options: object) -> Case:
    return case_of(damped, drawn((6, 6), (6, 6)), **options)


def frozen(**options: object) -> Case:
    model = seeded(Frozen).eval().requires_grad_(False)
    return case_of(model, drawn((4, 6)), freezing=True, **options)


def with_pass(make: Callable[..., Case], *places: str) -> Case:
    """Return a case whose config has the passes `stage/function` of `faults/passes.py`."""
    passes: dict[str, list[str]] = {}
    for place in places:
        stage, _, name = place.partition("/")
        passes.setdefault(stage, []).append(f"{PASSES}:{name}")
    return make(custom_passes=passes)


FAULTS = (
    *(("called", f"pre_grad/{name}") for name in ("softmax_over_rows", "swap_matmul", "swap_sub")),
    *(
        ("called", f"joint/{name}")
        for name in (
            "sin_is_cos", "exp_is_expm1", "where_the_other_way", "no_lower_bound", "no_alpha",
            "max_is_min", "cube_is_square", "mean_of_rows", "lost_negation", "raises_on_tanh",
            "floor_is_trunc", "sorted_backwards",
        )
    ),
    *(("called", f"forward/{n}") for n in ("sqrt_is_lost", "less_is_greater", "raises_on_log")),
    *(("trained", f"forward/{name}") for name in ("abs_is_lost", "sqrt_is_lost")),
    *(
        ("trained", f"backward/{name}")
        for name in (
            "gradient_of_tanh", "gradient_of_gelu", "gradient_negated", "gradient_summed_twice",
        )
    ),
    ("frozen", "frozen/weights_scaled"),
    *(("unpacked", f"frozen/{n}") for n in ("tanh_is_sigmoid", "bias_lost")),
)  # fmt: skip
MAKERS = {"called": called, "trained": trained, "frozen": frozen, "hidden": hidden}
MAKERS |= {
    "unfused": partial(frozen, disable=("fuse_post_ops",)),
    "unpacked": partial(frozen, disable=("fuse_post_ops", "prepack_linear")),
}


@pytest.mark.parametrize(
    ("maker", "where"),
    [
        pytest.param(m, w, id=f"{m}-{w}", marks=[pytest.mark.slow] if number % 3 else [])
        for number, (m, w) in enumerate(FAULTS)
    ],
)
def test_a_wrong_pass_is_named_and_confirmed(maker: str, where: str):
    search = find_culprit(with_pass(MAKERS[maker], where))
    assert is_exactly(search, where)
    assert search.compiles <= 8


def is_exactly(search: Search, where: str) -> bool:
    """Return whether one step is named, by several of its rewrites if several are wrong."""
    assert search.judgement.verdict is Verdict.REPRODUCES, search.judgement
    assert search.culprit is not None, search.reason
    assert {culprit.where for culprit in (search.culprit, *search.also)} == {where}
    return search.confirmed


HIDDEN = (
    ("hidden", "joint/slightly_wrong_exp"),
    ("hidden", "forward/slightly_wrong_sqrt"),
    ("hidden", "pre_grad/slightly_wrong_sub"),
)


def damped_frozen(**options: object) -> Case:
    model = seeded(Damped).eval().requires_grad_(False)
    return case_of(model, drawn((4, 6)), freezing=True, **options)


MAKERS |= {"damped_frozen": damped_frozen}


@pytest.mark.parametrize(
    ("maker", "where"),
    [*HIDDEN, ("damped_frozen", "frozen/slightly_wrong_weights"), ("hidden", "joint/exp_is_expm1")],
)
def test_an_error_below_every_tolerance_is_a_hidden_step(maker: str, where: str):
    search = find_culprit(with_pass(MAKERS[maker], where))
    assert search.judgement.verdict is Verdict.PASSES
    assert search.culprit is None
    assert [culprit.where for culprit in search.hidden] == [where]
    assert search.compiles == 2


def both_of(search: Search) -> set[str]:
    assert search.culprit is not None, search.reason
    assert search.confirmed
    return {culprit.where for culprit in (search.culprit, *search.also)}


def test_two_independent_passes_are_both_named():
    search = find_culprit(with_pass(called, "joint/max_is_min", "forward/sqrt_is_lost"))
    assert both_of(search) == {"joint/max_is_min", "forward/sqrt_is_lost"}
    assert search.relation == "independent"


def test_two_independent_failures_of_two_kinds_are_both_named():
    """Without the pass that raises, the other one shows for the first time."""
    search = find_culprit(with_pass(called, "joint/raises_on_tanh", "forward/sqrt_is_lost"))
    assert both_of(search) == {"joint/raises_on_tanh", "forward/sqrt_is_lost"}
    assert search.relation == "independent"


def test_a_guilty_forward_and_a_guilty_backward_are_both_named():
    search = find_culprit(with_pass(trained, "forward/abs_is_lost", "backward/gradient_of_gelu"))
    assert both_of(search) == {"forward/abs_is_lost", "backward/gradient_of_gelu"}
    assert search.relation == "independent"


@pytest.mark.parametrize(
    ("first", "second"),
    [("joint/mark_sines", "joint/drop_signs"), ("joint/split_exp", "forward/exp2_is_exp")],
)
def test_passes_that_fail_only_together_are_said_as_a_set(first: str, second: str):
    search = find_culprit(with_pass(called, first, second))
    assert both_of(search) == {first, second}
    assert search.relation == "together"


def test_a_pass_and_a_kernel_are_both_named(monkeypatch: pytest.MonkeyPatch):
    case = with_pass(called, "joint/max_is_min")
    plant_kernel(monkeypatch, aten.floor.default)
    case = replace(case, config={**case.config, "codegen": "per_node", "fallback": ()})
    search = find_culprit(case)
    assert both_of(search) == {"joint/max_is_min", "lowered/per_node:forward.floor"}
    assert search.relation == "independent"


def plant_kernel(
    monkeypatch: pytest.MonkeyPatch, operator: Callable[..., object], error: type | None = None
) -> None:
    """Let the kernels of one operator give something else, or raise."""

    def wrong(*args: object, **kwargs: object) -> object:
        if error is not None:
            raise error("planted")
        return operator(*args, **kwargs) * 1.5

    monkeypatch.setattr("ctk.compiler.codegen.select.CODEGENS", (per_node({operator: wrong}),))


def by_kernels(make: Callable[..., Case]) -> Case:
    return make(codegen="per_node", fallback=())


@pytest.mark.parametrize(
    ("maker", "operator", "kernel"),
    [
        ("called", aten.floor.default, "forward.floor"),
        ("called", aten.maximum.default, "forward.maximum"),
        ("trained", aten.gelu_backward.default, "backward.gelu_backward"),
        ("unfused", aten.tanh.default, "frozen.tanh"),
    ],
    ids=lambda value: str(value),
)
def test_a_wrong_kernel_is_named_and_confirmed(maker, operator, kernel, monkeypatch):
    plant_kernel(monkeypatch, operator)
    assert is_exactly(find_culprit(by_kernels(MAKERS[maker])), f"lowered/per_node:{kernel}")


def test_a_wrong_kernel_in_forward_and_backward_is_named_twice(monkeypatch: pytest.MonkeyPatch):
    """The backward graph computes sigmoid again."""
    plant_kernel(monkeypatch, aten.sigmoid.default)
    search = find_culprit(by_kernels(trained))
    assert both_of(search) == {
        "lowered/per_node:forward.sigmoid",
        "lowered/per_node:backward.sigmoid",
    }
    assert search.relation == "independent"


class Isolating(InProcess):
    """Stands in for child processes."""

    isolates = True


def test_a_hidden_step_is_found_where_children_answer_too():
    maker, where = HIDDEN[0]
    search = find_culprit(with_pass(MAKERS[maker], where), executor=Isolating())
    assert search.judgement.verdict is Verdict.PASSES
    assert [culprit.where for culprit in search.hidden] == [where]


def test_a_kernel_that_raises_is_named_and_confirmed(monkeypatch: pytest.MonkeyPatch):
    plant_kernel(monkeypatch, aten.floor.default, ArithmeticError)
    search = find_culprit(by_kernels(called))
    assert search.judgement.signature is not None
    assert search.judgement.signature.exception == "ArithmeticError"
    assert is_exactly(search, "lowered/per_node:forward.floor")


def test_a_wrong_partition_is_named_and_confirmed(monkeypatch: pytest.MonkeyPatch):
    """What is saved for backward is not what backward takes it for."""
    right = split.min_cut_rematerialization_partition

    def wrong(joint, joint_inputs, **options):
        forward, backward = right(joint, joint_inputs, **options)
        for node in backward.graph.find_nodes(
            op="call_function", target=aten.gelu_backward.default
        ):
            scaled = backward.graph.call_function(aten.mul.Tensor, (node.args[0], 1.5))
            node.prepend(scaled)
            node.update_arg(0, scaled)
        backward.recompile()
        return forward, backward

    monkeypatch.setattr(split, "min_cut_rematerialization_partition", wrong)
    search = find_culprit(trained())
    assert is_exactly(search, "joint/partition")


@pytest.mark.slow
def test_a_wrong_partition_of_inductor_is_named_and_confirmed(monkeypatch: pytest.MonkeyPatch):
    """Inductor splits its joint graph with the same partitioner, by a name of its own."""
    from torch._inductor import compile_fx

    right = compile_fx.min_cut_rematerialization_partition

    def wrong(joint, joint_inputs, **options):
        forward, backward = right(joint, joint_inputs, **options)
        product = next(iter(backward.graph.find_nodes(op="call_function", target=aten.mul.Tensor)))
        product.target = aten.add.Tensor
        backward.recompile()
        return forward, backward

    monkeypatch.setattr(compile_fx, "min_cut_rematerialization_partition", wrong)
    search = find_culprit(replace(trained(), target="inductor"))
    assert is_exactly(search, "joint/partition")
    monkeypatch.undo()
    without = Recorder(Veto(passes=frozenset({"joint/partition"})))
    judgement = judge(replace(trained(), target="inductor"), observer=without)
    assert judgement.verdict is Verdict.PASSES, "a right one may be left out, too"


def test_a_wrong_functionalization_is_named_and_proved(monkeypatch: pytest.MonkeyPatch):
    """A write into a view gets lost on the way to the functional graph."""

    def program(x: Tensor, y: Tensor) -> Tensor:
        z = x.clone()
        z[1:3].add_(y[1:3])
        return z.sin()

    right = aot.trace

    def wrong(gm, inputs, *, inference, **others):
        def without_writes(graph, graph_inputs):
            for node in graph.graph.nodes:
                if node.target is aten.slice_scatter.default:
                    node.replace_all_uses_with(node.args[0])
            return inference(graph, graph_inputs)

        return right(gm, inputs, inference=without_writes, **others)

    monkeypatch.setattr(aot, "trace", wrong)
    search = find_culprit(case_of(program, drawn((6, 6), (6, 6))))
    assert is_exactly(search, "dispatch/functionalize")
    assert "add_" in search.culprit.captured
