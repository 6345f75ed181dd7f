"""Small programs for the tests of the Inductor target, and what is asked of every record."""

import gc
import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node, symbolic_trace

from ctk.compiler.fx.same import same_graph
from ctk.compiler.observe import PassRecord, StageRecord
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.targets.base import Compiled
from ctk.toolkit.targets.inductor.patterns import rule_name
from ctk.toolkit.targets.inductor.target import TARGET

Inputs = tuple[Tensor, ...]
RELU_BUG = "cpp.inject_relu_bug_TESTING_ONLY"
FORWARD, BACKWARD = "lowered/inductor:forward", "lowered/inductor:backward"


def observe(
    function: Callable[..., object],
    inputs: Sequence[object],
    veto: Veto | None = None,
    **config: object,
) -> tuple[Compiled, Recorder]:
    recorder = Recorder(veto, keep_calls=True, keep_rewrites=True)
    options = {key.replace("__", "."): value for key, value in config.items()}
    gm = function if isinstance(function, GraphModule) else symbolic_trace(function)
    return TARGET.compile(gm, list(inputs), config=options, observer=recorder), recorder


def names(recorder: Recorder, *, changed: bool = True) -> list[str]:
    return [str(p.id) for p in recorder.log.passes() if p.changed or not changed]


def attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
    scores = torch.matmul(query, key.transpose(-2, -1)).div(2.0)
    return (scores.softmax(-1).matmul(value),)


def permuted_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor]:
    """Issue 195320: a key that is permuted where the pattern transposes."""
    scores = torch.matmul(query.permute(0, 2, 1, 3), key.permute(0, 2, 3, 1)) * 0.5
    return (torch.matmul(scores.softmax(-1), value.permute(0, 2, 1, 3)),)


def attention_inputs() -> Inputs:
    torch.manual_seed(0)
    return tuple(torch.randn(2, 4, 4, 8) for _ in range(3))


def slice_scatter(x: Tensor, source: Tensor) -> Tensor:
    """Issue 198094: the result is written into `x`, which is then zeroed."""
    y = torch.slice_scatter(x, source, dim=0, start=1, end=3)
    x.zero_()
    return y


def shuffled() -> GraphModule:
    """Issue 188223, `x[torch.randperm(10)]`: `randperm_index_pattern` raises in torch 2.13."""
    graph = Graph()
    x = graph.placeholder("x")
    order = graph.call_function(torch.randperm, (10,))
    graph.output(graph.call_function(operator.getitem, (x, order)))
    return GraphModule({}, graph)


@contextmanager
def raising_match() -> Generator[None]:
    """Let each match of `randperm_index_pattern` raise, in every torch."""
    observe(relu_net, relu_inputs())  # the first compile registers the patterns
    gc.unfreeze()  # `long_lived` hides them from `get_objects`
    tables = (
        table for table in gc.get_objects() if type(table) is inductor.sites().pattern_pass.owner
    )
    entries = {
        id(entry): entry
        for table in tables
        for group in table.patterns.values()
        for entry in group
        if rule_name(entry).endswith("randperm_index_pattern")
    }
    assert entries

    def raises(node: Node) -> object:
        raise RuntimeError("the match raises")

    with ExitStack() as stack:
        for entry in entries.values():
            stack.enter_context(mock.patch.object(entry.pattern, "match", raises))
        yield


def relu_net(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w).view(-1).softmax(-1).pow(2)


def relu_inputs(*, grad: bool = False) -> Inputs:
    torch.manual_seed(0)
    return torch.randn(3, 4), torch.randn(4, 5, requires_grad=grad)


def assert_chained(recorder: Recorder) -> None:
    last: dict[str, GraphModule] = {}
    for event in recorder.log.events:
        if isinstance(event, StageRecord):
            last[event.stage] = event.graph
        elif isinstance(event, PassRecord) and event.id.stage == "dispatch":
            continue  # decompositions are told with the graph that they have made
        elif isinstance(event, PassRecord):
            assert event.before is last[event.id.stage], event.id
            assert event.changed != same_graph(event.before, event.after), event.id
            last[event.id.stage] = event.after
            kept = [r for r in event.rewrites if not r.vetoed and r.after is not None]
            if event.changed and kept and kept[-1].after is not None:
                assert same_graph(kept[-1].after(), event.after), event.id


def captured(function: Callable[..., object], *inputs: object, dynamic: bool = False) -> Recorder:
    """Capture with Dynamo and compile under watch; compare with eager."""
    recorder = Recorder(keep_calls=True, keep_rewrites=True)

    def backend(gm: GraphModule, example_inputs: list[object]) -> Compiled:
        return TARGET.compile(gm, example_inputs, config={}, observer=recorder)

    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(function, backend=backend, dynamic=dynamic)(*inputs), function(*inputs)
    )
    return recorder
