"""ShrinkDimensions: the case that it makes, and where it makes no sense."""

import torch
import torch.nn.functional as F
from torch.export import export

from ctk.compiler.fx.walk import input_names
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.dimensions.dimension_edits import Resize, ShrinkDimensions
from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from tests.helpers.reduce_graphs import captured, op_names


def shrunk(case: Case, name: str, dim: int, new: int, **options: bool) -> Case | None:
    value = case.inputs[[n.name for n in case.graph.graph.find_nodes(op="placeholder")].index(name)]
    resize = Resize(SizePlace("input", "", name, (dim,)), value.shape[dim], new)
    return ShrinkDimensions((resize,), **options).apply(case, facts_of(case))


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in case.inputs if isinstance(value, torch.Tensor)]


def test_it_says_what_it_does():
    edit = ShrinkDimensions((Resize(SizePlace("input", "", "x", (0,)), 17, 16),))
    assert edit.says() == "dimension 0 of x: 17 -> 16"
    literal = Resize(SizePlace("literal", "body", "view", (2,)), 8, 1)
    assert ShrinkDimensions((literal,)).says() == "argument 2 of body.view: 8 -> 1"


def test_what_belongs_together_shrinks_together():
    case = captured(lambda x, w, b: F.linear(x, w, b), *map(torch.randn, [(3, 5), (7, 5), 7]))
    new = shrunk(case, "l_x_", 1, 2)
    assert new is not None
    assert shapes(new) == [(3, 2), (7, 2), (7,)]
    assert shapes(case) == [(3, 5), (7, 5), (7,)]
    assert new.graph(*new.inputs)[0].shape == (3, 7)


def test_the_least_valid_size_stands_in_for_one_that_is_not():
    case = captured(lambda x: x.chunk(3, 1)[2] + 1, torch.randn(2, 12))
    new = shrunk(case, "l_x_", 1, 1)
    assert new is not None
    assert shapes(new) == [(2, 3)]
    assert shrunk(new, "l_x_", 1, 1) is None


def test_alone_a_dimension_may_broadcast():
    case = captured(lambda x, y: x + y, torch.randn(4, 3), torch.randn(4, 3))
    new = shrunk(case, "l_y_", 0, 1, alone=True)
    assert new is not None
    assert shapes(new) == [(4, 3), (1, 3)]
    case = captured(lambda x, y: x @ y, torch.randn(4, 3), torch.randn(3, 4))
    assert shrunk(case, "l_y_", 0, 1, alone=True) is None


def test_indices_stay_within_what_they_index():
    case = captured(F.embedding, torch.tensor([[5, 90]]), torch.randn(100, 4))
    names = [n.name for n in case.graph.graph.find_nodes(op="placeholder")]
    new = shrunk(case, names[1], 0, 10)
    assert new is not None
    assert new.inputs[0].tolist() == [[5, 0]]
    assert new.graph(*new.inputs)[0].shape == (1, 2, 4)


def test_an_index_beside_a_size_of_zero_keeps_its_value():
    inputs = torch.tensor(0), torch.empty(2, 0, 2)
    case = captured(lambda i, x: (i.reshape(-1), x.squeeze(0)), *inputs)
    new = shrunk(case, "l_x_", 0, 1)
    assert new is not None
    assert shapes(new) == [(), (1, 0, 2)]
    assert new.inputs[0] is case.inputs[0]


def test_indices_that_fit_stay():
    case = captured(F.embedding, torch.tensor([[5, 2]]), torch.randn(100, 4))
    names = [n.name for n in case.graph.graph.find_nodes(op="placeholder")]
    new = shrunk(case, names[1], 1, 1)
    assert new is not None
    assert new.inputs[0].tolist() == [[5, 2]]


def test_the_window_holds_what_is_notable():
    x = torch.rand(40, 8)
    x[30, 5] = float("nan")
    case = captured(lambda x: x * 2, x)
    new, start = shrunk(case, "l_x_", 0, 3), shrunk(case, "l_x_", 0, 3, from_start=True)
    assert new is not None
    assert start is not None
    assert torch.equal(new.inputs[0].nan_to_num(9), x[28:31].nan_to_num(9))
    assert torch.equal(start.inputs[0], x[:3])


def test_the_window_holds_what_stands_behind_zeros():
    x, y = torch.zeros(4, 3, dtype=torch.int8), torch.ones(4, 3, dtype=torch.int8)
    x[2, 0], y[2] = 7, 5
    case = captured(torch.mul, x, y)
    new = shrunk(case, input_names(case.graph)[0], 0, 1)
    assert [each.tolist() for each in new.inputs] == [[[7, 0, 0]], [[5, 5, 5]]]


def test_inputs_that_share_memory_still_do():
    x = torch.randn(6, 4)
    case = captured(lambda a, b: a * 2 + b, x[:4], x[2:])
    new = shrunk(case, "l_a_", 0, 1)
    assert new is not None
    a, b = new.inputs
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    assert shapes(new) == [(1, 4), (1, 4)]
    assert torch.equal(a, x[:1])
    assert torch.equal(b, x[2:3])


def test_constants_shrink_and_buffers_stay_buffers():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.randn(8, 5), persistent=False)

        def forward(self, x):
            return x @ self.scale

    x = torch.randn(3, 8)
    gm = export(Scaled(), (x,)).module(check_guards=False)
    new = shrunk(Case(gm, (x,)), "x", 1, 2)
    assert new is not None
    assert new.graph.scale.shape == (2, 5)
    assert dict(new.graph.named_buffers()).keys() == {"scale"}
    assert gm.scale.shape == (8, 5)


def test_sizes_that_dynamo_keeps_symbolic_stay_above_one():
    case = captured(lambda x: x * x.shape[0], torch.randn(8, 6), dynamic=True)
    name = case.graph.graph.find_nodes(op="placeholder")[-1].name
    new = shrunk(case, name, 0, 1)
    assert new is not None
    assert new.inputs[-1].shape == (2, 6)
    assert 2 in new.inputs[:-1]
    assert new.dynamic == case.dynamic


def test_sub_graphs_follow():
    def run(p, x, w):
        return torch.cond(
            p, lambda x, w: (x @ w).view(2, 4, 5), lambda x, w: (x @ w).view(2, 4, 5) + 1, (x, w)
        )

    case = captured(run, torch.tensor(True), torch.randn(8, 6), torch.randn(6, 5))
    name = [n.name for n in case.graph.graph.find_nodes(op="placeholder")][2]
    new = shrunk(case, name, 1, 1)
    assert new is not None
    assert new.graph(*new.inputs)[0].shape == (2, 4, 1)
    assert op_names(new) == op_names(case)


def test_what_the_graph_has_on_record_goes():
    case = captured(lambda x: x.relu() * 2, torch.randn(4, 3))
    new = shrunk(case, "l_x_", 0, 1)
    assert new is not None
    assert all("example_value" not in node.meta for node in new.graph.graph.nodes)


def test_where_data_decides_on_sizes_the_case_is_run():
    graph = torch.fx.symbolic_trace(lambda x: x[x > 0].reshape(5, -1))
    new = shrunk(Case(graph, (torch.ones(5, 5),)), "x", 0, 1)
    assert new is not None
    assert shapes(new) == [(1, 5)]
    four_in_a_row = torch.ones(5, 5) - torch.eye(5)
    assert shrunk(Case(graph, (four_in_a_row,)), "x", 0, 1) is None


def test_a_tensor_without_elements_is_no_harm():
    empty, full = torch.zeros(0, 6), torch.zeros(4, 6)
    full[3, 5] = 1.0
    case = captured(lambda x, y: torch.cat([x, y]), empty, full)
    new = shrunk(case, input_names(case.graph)[0], 1, 1)
    assert shapes(new) == [(0, 1), (4, 1)]
    case = captured(lambda x: x + 1, torch.zeros(6, 0, 4))
    assert shapes(shrunk(case, "l_x_", 0, 1)) == [(1, 0, 4)]
