"""Traces of made-up compiles of any size: a transformer whose fold of a scale goes wrong."""

import random
from functools import partial

from ctk.toolkit.compile_log.trace.document import (
    Trace,
    TraceEdit,
    TraceError,
    TraceErrorSize,
    TraceGraph,
    TraceKernel,
    TraceNode,
    TraceRewrite,
    TraceStep,
)

OPERATORS = ("view", "mm", "add", "mul", "permute", "rsqrt", "mean", "sub", "gelu", "clone")
SOURCE = """#include <cmath>
extern "C" void kernel(const float* in0, const float* in1, float* out)
{
    for (long i = 0; i < 8192; ++i) {
        float scaled = in0[i] * 0.5f;
        out[i] = in1[i] + in0[i];
    }
}
"""
MISMATCH = "8191 of 8192 elements wrong, got -0.754, expected 0.473; max abs 1.23"
IR = """kernel forward.add_5: f32[4, 32, 64]
  for i in 8192
    v0 = load mul_4[i]
    v1 = load layer_norm_2[i]
    store add_5[i] = v0 + v1
"""


def transformer(layers: int = 4, per_layer: int = 24) -> tuple[TraceNode, ...]:
    """Return a graph in blocks, one per layer and module, with residual connections."""
    draw = random.Random(0)
    nodes = [TraceNode("x", "placeholder", "x: float32[4, 32, 64]", (), "float32[4, 32, 64]")]
    for layer in range(layers):
        start = nodes[-1].name
        for number in range(per_layer):
            part = "attention" if number < per_layer // 2 else "mlp"
            operator = OPERATORS[number % len(OPERATORS)]
            name = f"{operator}_{layer}_{number}"
            operands = [nodes[-1].name]
            if operator in ("add", "sub", "mul"):
                operands.append(start if number > per_layer - 4 else draw.choice(nodes[-6:]).name)
            text = f"{name}: float32[4, 32, 64] = aten.{operator}.Tensor({', '.join(operands)})"
            nodes.append(
                TraceNode(
                    name,
                    "call_function",
                    text,
                    tuple(operands),
                    "float32[4, 32, 64]",
                    f"model.py:{20 + number}",
                    f"encoder.layers.{layer}.{part}",
                )
            )
    last = nodes[-1].name
    return (*nodes, TraceNode("output", "output", f"return ({last},)", (last,)))


def error(name: str, before: float, after: float | None) -> TraceError:
    absolute = None if after is None else after * 6e-8
    sizes = TraceErrorSize(before, before * 6e-8, 0.0), TraceErrorSize(after, absolute, absolute)
    return TraceError(name, name, "float32", *sizes)


def made_trace(layers: int = 4, per_layer: int = 24, *, kernel: bool = False) -> Trace:
    """Return a compile with three stages, passes, one wrong fold, and a kernel for each layer."""
    nodes = transformer(layers, per_layer)
    at = 1 + (layers // 2) * per_layer + per_layer // 2
    culprit, folded = nodes[at], f"add_tensor_{layers // 2}"
    first, second = nodes[at - 1].name, nodes[at - 2].name
    new = TraceNode(
        folded,
        "call_function",
        f"{folded}: float32[4, 32, 64] = aten.add.Tensor({first}, {second})",
        (first, second),
        culprit.value,
        culprit.place,
        culprit.module,
    )
    user = nodes[at + 1]
    moved = TraceNode(
        user.name,
        user.op,
        user.text.replace(culprit.name, folded),
        tuple(folded if name == culprit.name else name for name in user.inputs),
        user.value,
        user.place,
        user.module,
    )
    graphs = (
        TraceGraph(None, (TraceEdit(0, 0, nodes),)),
        TraceGraph(0, (TraceEdit(at, 2, (new, moved)),)),
    )
    spread = [
        error(node.name, 1.0, 1.0 + 3 ** (n % 9)) for n, node in enumerate(nodes[at + 2 : -1])
    ]
    wrong = (error(folded, 0.5, 1.6e7), error(user.name, 0.9, 8e6), *spread)
    rewrites = (TraceRewrite(10, 6, "mul, add -> add", (culprit.name, folded)),)
    exact = partial(TraceStep, kind="pass", stage="joint", before=0, numerics="exact", compared=98)
    small = tuple(error(node.name, 0.5, 1.5 + n % 3) for n, node in enumerate(nodes[1:9]))
    steps = [
        TraceStep("captured", "stage", "captured", None, 0),
        TraceStep("joint", "stage", "joint", None, 0),
        exact("joint/fold_constants", after=0, seconds=0.001, status="ok", errors=()),
        exact("joint/cse", after=0, seconds=0.002, status="ok", errors=()),
        exact("joint/reassociate", after=0, seconds=0.002, status="ok", errors=small),
        exact(
            "joint/fold_scale_into_add",
            after=1,
            seconds=0.004,
            status="ok" if kernel else "wrong",
            node="" if kernel else folded,
            mismatch="" if kernel else MISMATCH,
            rewrites=rewrites,
            errors=wrong[2:4] if kernel else wrong,
        ),
    ]
    for layer in range(layers):
        is_wrong = kernel and layer == layers // 2
        prefix = f"encoder.layers.{layer}."
        names = [node.name for node in nodes if node.module.startswith(prefix)]
        lines = (6,) if is_wrong else ()
        steps.append(
            TraceStep(
                f"lowered/c:forward.layer_{layer}",
                "kernel",
                "lowered",
                1,
                status="wrong" if is_wrong else "ok",
                node=user.name if is_wrong else "",
                mismatch=MISMATCH if is_wrong else "",
                compared=1,
                errors=(error(names[-1], 1.0, 4e6 if is_wrong else 2.0 + layer),),
                kernel=TraceKernel(tuple(names[-6:]), SOURCE, ".c", IR, wrong_lines=lines),
            )
        )
    return Trace("graph0", "ctk", tuple(steps), graphs)
