"""Passes on functional collectives: they fire, keep values and layouts, and leave near misses."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import ctk
from ctk.compiler.fx.collectives import is_start, is_wait
from ctk.compiler.observe import PassRecord, RewriteId
from ctk.compiler.passes.post_grad import overlap_collectives
from ctk.compiler.pipeline import compile_fx
from ctk.compiler.torch_compat.process.process_groups import stand_in_for_group
from ctk.toolkit.compile_log.recorder import Recorder, Veto

GROUP, OTHER = "tests.collectives", "tests.others"
C = torch.ops._c10d_functional
GATHERS = {"bucket_gathers.enabled": True}
REDUCTIONS = {"bucket_reductions.enabled": "always"}
OVERLAP = {"overlap_collectives.enabled": True}


@pytest.fixture(autouse=True)
def _groups() -> None:
    for name in (GROUP, OTHER):
        stand_in_for_group(name, 1, 2)


def gather(x: Tensor, group: str = GROUP) -> Tensor:
    return C.wait_tensor(C.all_gather_into_tensor(x, 2, group))


def reduce(x: Tensor, op: str = "sum", group: str = GROUP) -> Tensor:
    return C.wait_tensor(C.all_reduce(x, op, group))


def scatter(x: Tensor, op: str = "sum") -> Tensor:
    return C.wait_tensor(C.reduce_scatter_tensor(x, op, 2, GROUP))


def two_gathers(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return gather(x) * 2, gather(y + 1), gather(x[:2].clone())


def late_operand(x: Tensor, y: Tensor) -> Tensor:
    first = gather(x).sum() * 3
    return gather(y + 1) + first


def booleans(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return gather(x > 0), gather(y > 1), gather(x.int()), gather(y.int())


def special(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    extreme = torch.full_like(x, float("nan")), torch.full_like(y, -0.0) * float("inf")
    return tuple(gather(each) for each in extreme)


def two_reductions(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return reduce(x + 1), reduce(y) * 2, reduce(x.sum())


def two_kinds(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return reduce(x), reduce(y), reduce(x * 2, "max"), reduce(y * 2, "max")


def two_scatters(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return scatter(x), scatter(y * 2) + 1, scatter(x * 3)


FIRING = [
    pytest.param(two_gathers, GATHERS, 1, id="gathers"),
    pytest.param(late_operand, GATHERS, 1, id="operand behind a reader"),
    pytest.param(booleans, GATHERS, 2, id="booleans and integers"),
    pytest.param(special, GATHERS, 1, id="nan, inf"),
    pytest.param(two_reductions, REDUCTIONS, 1, id="reductions"),
    pytest.param(two_kinds, REDUCTIONS, 2, id="two kinds"),
    pytest.param(two_scatters, REDUCTIONS, 1, id="scatters"),
]


def chained(x: Tensor, y: Tensor) -> Tensor:
    return gather(gather(x).sum(0) + y[0])


def groups(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return gather(x), gather(y, OTHER)


def dtypes(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return gather(x), gather(y.double())


def reductions(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return reduce(x), reduce(y, "max"), reduce(x.to(torch.complex64)), reduce(y.to(torch.complex64))


def without_elements(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return gather(x[:0].clone()), gather(y)


NEAR_MISSES = [
    pytest.param(chained, GATHERS, id="one reads the other"),
    pytest.param(groups, GATHERS, id="groups"),
    pytest.param(dtypes, GATHERS, id="dtypes"),
    pytest.param(without_elements, GATHERS, id="empty"),
    pytest.param(two_gathers, {**GATHERS, "bucket_gathers.megabytes": 1e-6}, id="too large"),
    pytest.param(two_gathers, {}, id="off"),
    pytest.param(reductions, REDUCTIONS, id="reductions, complex"),
    pytest.param(two_reductions, {}, id="no request of DDP"),
]


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 3), torch.randn(6, 3)


def compiled(
    function: Callable[..., Any], options: Mapping[str, object], veto: Veto | None = None
) -> tuple[Any, list[PassRecord]]:
    """Return results, and the records of the passes on collectives."""
    recorder = Recorder(veto=veto) if veto is not None else Recorder()
    graph = make_fx(function)(*inputs())
    result = compile_fx(graph, inputs(), {"verify": True, **options}, recorder)(*inputs())
    records = [each for each in recorder.log.events if isinstance(each, PassRecord)]
    names = ("bucket_gathers", "bucket_reductions", "overlap_collectives")
    return result, [each for each in records if each.id.name in names]


def rewrites(records: list[PassRecord]) -> list[RewriteId]:
    return [each.id for record in records for each in record.rewrites if not each.vetoed]


def count(records: list[PassRecord]) -> int:
    return len(rewrites(records))


def check_same(result: Any, function: Callable[..., Any]) -> None:
    tensors, wanted = tree_leaves(result), tree_leaves(function(*inputs()))
    torch.testing.assert_close(tensors, wanted, rtol=0, atol=0, equal_nan=True)
    assert [each.stride() for each in tensors] == [each.stride() for each in wanted]
    storages = {each.untyped_storage().data_ptr() for each in tensors}
    assert len(storages) == len({each.untyped_storage().data_ptr() for each in wanted})
    assert all(
        each.untyped_storage().nbytes() == other.untyped_storage().nbytes()
        for each, other in zip(tensors, wanted, strict=True)
    )


@pytest.mark.parametrize(("function", "options", "number"), FIRING)
def test_buckets(function: Any, options: Any, number: int) -> None:
    result, records = compiled(function, options)
    assert count(records) == number
    check_same(result, function)


@pytest.mark.parametrize(("function", "options"), NEAR_MISSES)
def test_no_bucket(function: Any, options: Any) -> None:
    _, records = compiled(function, options)
    assert count(records) == 0


def test_a_bucket_that_is_full_is_followed_by_another() -> None:
    def four(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return gather(x), gather(x + 1), gather(x + 2), gather(y)

    two = 2 * 96 / 2**20  # a result of `gather(x)` has 96 bytes
    result, records = compiled(four, {**GATHERS, "bucket_gathers.megabytes": two})
    assert count(records) == 1
    check_same(result, four)


def test_a_vetoed_bucket_stays_apart() -> None:
    _, records = compiled(two_kinds, REDUCTIONS)
    veto = Veto(rewrites=frozenset({rewrites(records)[0].number}))
    result, records = compiled(two_kinds, REDUCTIONS, veto)
    assert [each.index for each in rewrites(records)] == [2]
    check_same(result, two_kinds)


def test_ddp_asks_for_buckets() -> None:
    config: Any = torch._inductor.config
    with config.patch(_fuse_ddp_communication=True, _fuse_ddp_bucket_size=1):
        result, records = compiled(two_kinds, {})
        assert count(records) == 2
        check_same(result, two_kinds)
        assert count(compiled(two_scatters, {})[1]) == 0
        assert count(compiled(two_kinds, {"bucket_reductions.enabled": "never"})[1]) == 0


def test_symbolic_sizes_are_left_alone() -> None:
    recorder = Recorder()
    torch._dynamo.reset()
    torch.compile(
        two_gathers, backend=lambda *args: compile_fx(*args, GATHERS, recorder), dynamic=True
    )(*inputs())
    records = [each for each in recorder.log.events if isinstance(each, PassRecord)]
    assert not [each for each in records if each.id.name == "bucket_gathers" and each.rewrites]


def order(record: PassRecord) -> str:
    """Return `s` for a start, `w` for a wait, `m` for a product, in order."""
    letters = {True: "s"}
    found = ""
    for node in record.after.graph.nodes:
        product = "m" if node.target is torch.ops.aten.mm.default else ""
        found += letters.get(is_start(node), "w" if is_wait(node) else product)
    return found


@pytest.mark.parametrize(("prefetch", "wanted"), [(1, "swsmwsmwm"), (2, "sswsmwmwm")])
def test_gathers_are_prefetched(prefetch: int, wanted: str) -> None:
    def shards(x: Tensor, y: Tensor) -> Tensor:
        hidden = x[:, :3].sum(0)
        for shard in (x, y, y.view(-1)):
            hidden = (gather(shard).view(-1, 3).mm(hidden.diag()) + 1).sum(0)
        return hidden

    result, (*_, record) = compiled(shards, {**OVERLAP, "overlap_collectives.prefetch": prefetch})
    assert order(record) == wanted
    torch.testing.assert_close(result, shards(*inputs()))


def test_a_wait_moves_to_the_first_reader() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        total = reduce(x.sum(0))
        return y.mm(x.t()).sin().sum() + total

    result, (*_, record) = compiled(program, OVERLAP)
    assert order(record) == "smw"
    assert count([record]) == 1
    torch.testing.assert_close(result, program(*inputs()))


def test_nothing_moves_across_a_write() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        total = reduce(x)
        x.add_(1)
        return total + y[:4]

    recorder = Recorder()
    graph = make_fx(program)(*inputs())
    x, y = inputs()
    compile_fx(graph, (x, y), OVERLAP, recorder)(x, y)
    torch.testing.assert_close(x, inputs()[0] + 1)


@pytest.mark.parametrize("codegen", ["c", "eager"])
def test_memory_is_kept_until_the_wait(codegen: str) -> None:
    """The library reads `x + 1` until the wait; a kernel in between must not write there."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        operand = x + 1
        started = C.all_gather_into_tensor(operand, 2, GROUP)
        other = torch.ops.aten.index_fill.int_Scalar(x * 2, 0, y[:1, 0].long() * 0, 5.0)
        return C.wait_tensor(started), other.mm(y[:3])

    recorder = Recorder()
    graph = make_fx(program)(*inputs())
    result: Any = compile_fx(graph, inputs(), {"codegen": codegen}, recorder)(*inputs())
    torch.testing.assert_close(tuple(result), program(*inputs()))


def test_a_planted_fault_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ctk.compiler.passes.post_grad import collectives

    original = collectives._pieces

    def swapped(insert: Any, bucket: Any, waited: Any) -> Any:
        pieces = list(original(insert, bucket, waited))
        return [insert(torch.ops.aten.neg.default, pieces[0]), *pieces[1:]]

    monkeypatch.setattr(collectives, "_pieces", swapped)
    for function, options, name in (
        (two_gathers, GATHERS, "bucket_gathers"),
        (two_reductions, REDUCTIONS, "bucket_reductions"),
    ):
        graph = make_fx(function)(*inputs())
        found = ctk.bisect(graph, list(inputs()), config=options, out=tmp_path / name)
        assert found.search.culprit is not None
        assert found.search.culprit.name == name


def test_a_planted_wait_that_is_dropped_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong(rewriter: Any, each: Any) -> None:
        def edit(graph: Any) -> None:
            for user in list(each.wait.users):
                with graph.inserting_before(user):
                    other = graph.call_function(torch.ops.aten.neg.default, (each.wait,))
                user.replace_input_with(each.wait, other)

        rewriter.rewrite("planted", [each.wait], edit)

    monkeypatch.setattr(overlap_collectives, "_wait_late", wrong)
    graph = make_fx(two_gathers)(*inputs())
    found = ctk.bisect(graph, list(inputs()), config=OVERLAP, out=tmp_path / "out")
    assert found.search.culprit is not None
    assert found.search.culprit.name == "overlap_collectives"
