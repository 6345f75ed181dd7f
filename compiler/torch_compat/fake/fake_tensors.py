"""Fake tensors, symbolic sizes and dispatch modes."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import functools
import importlib
import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes


@functools.cache
def _fakes() -> Any:
    return importlib.import_module("torch._subclasses.fake_tensor")


@functools.cache
def _guards() -> Any:
    return importlib.import_module("torch._guards")


@functools.cache
def _dispatch_modes() -> Any:
    return importlib.import_module("torch.utils._python_dispatch")


def symbol_and_hint(value: Any) -> tuple[str, int | float | bool | None]:
    """Return the expression of a SymInt, SymFloat or SymBool, and its hint (None: unbacked)."""
    node = value.node
    hint = node.hint if node.has_hint() else None
    return str(node.expr), hint if isinstance(hint, int | float | bool) else None


def hints_of(sizes: Iterable[Any]) -> list[int]:
    """Return the numbers that sizes have now: symbols by their hints, unbacked ones left out."""
    hints = [symbol_and_hint(each)[1] if is_symbolic(each) else each for each in sizes]
    return [each for each in hints if isinstance(each, int)]


def is_fake(value: object) -> bool:
    """Return whether a value is a FakeTensor: it has a shape and no numbers."""
    return isinstance(value, _fakes().FakeTensor)


def is_symbolic(value: object) -> bool:
    """Return whether a value is a SymInt, SymFloat or SymBool."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def known_equal(a: object, b: object) -> bool:
    """Return whether symbols of one compile are known to be equal; no guard is added."""
    envs = {id(each.node.shape_env) for each in (a, b) if isinstance(each, torch.SymInt)}
    if len(envs) != 1 or not all(isinstance(each, (int, torch.SymInt)) for each in (a, b)):
        return False
    symbolic = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    return symbolic.statically_known_true(a == b)


def mode_of(values: Sequence[object]) -> Any | None:
    """Return the FakeTensorMode of the first fake tensor among `values`, or None."""
    return next(
        (value.fake_mode for value in values if isinstance(value, _fakes().FakeTensor)), None
    )


def inputs_of_trace(inputs: Sequence[object]) -> list[object]:
    """Return example inputs as a trace will get them, with Dynamo's symbols.

    Dynamo gives its backend real tensors, and records their symbolic sizes. A trace makes fake
    tensors of them; the results here are the same objects.

    In torch: `TracingContext.tensor_to_context`, as `process_inputs` reads it.
    """
    context = _guards().TracingContext.try_get()
    if context is None or context.fake_mode is None or not any(map(is_symbolic, inputs)):
        return list(inputs)
    return [_as_traced(each, context) for each in inputs]


def _as_traced(value: object, context: Any) -> object:
    """Return the fake tensor of a tensor with symbols; any other value unchanged."""
    if not isinstance(value, torch.Tensor) or is_fake(value):
        return value
    symbolic = context.tensor_to_context.get(value)
    if symbolic is None or _is_static(symbolic):
        return value
    source = symbolic.tensor_source
    return context.fake_mode.from_tensor(value, symbolic_context=symbolic, source=source)


def _is_static(symbolic: Any) -> bool:
    kinds = getattr(symbolic, "dynamic_sizes", None)
    base = getattr(symbolic, "view_base_context", None)
    is_static = kinds is not None and all(kind.name == "STATIC" for kind in kinds)
    return is_static and (base is None or _is_static(base))


def to_fake(value: object, mode: Any) -> object:
    """Return a fake tensor like `value` when it is a real tensor; anything else as it is."""
    if isinstance(value, torch.Tensor) and not is_fake(value):
        return mode.from_tensor(value, static_shapes=True)
    return value


@contextlib.contextmanager
def fake_compute(mode: Any) -> Generator[None]:
    """Run operators on fake tensors of `mode`, not tracking gradients and unbacked symbols."""
    with mode, torch.no_grad(), unbound_symbols(mode):
        yield


def unbound_symbols(mode: Any) -> AbstractContextManager[object]:
    """Let operators make symbols that no node of a traced graph binds.

    A later trace with the same shapes would miss them otherwise: of `item`, an int of `while_loop`.
    """
    ignore = getattr(mode.shape_env, "ignore_fresh_unbacked_symbols", contextlib.nullcontext)
    return ignore()


def run_on_fakes(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator on fake tensors, under `fake_compute`; refuse views as real tensors do.

    Fake tensors of torch 2.11 to 2.15 allow a view that no strides have, across a dimension of size
    1: of `[4, 1, 3]` with the strides (1, 12, 4) as `[12]`. Meta tensors do not.

    Raises:
        Exception: The operator cannot run on these operands.
    """
    if target is torch.ops.aten.view.default:
        tensor, sizes = args[0], tuple(args[1])
        if not any(map(is_symbolic, (*tensor.shape, *tensor.stride(), *sizes))):
            with real_compute():
                torch.empty_strided(tensor.shape, tensor.stride(), device="meta").view(sizes)
    return target(*args, **kwargs)


@contextlib.contextmanager
def real_compute() -> Generator[None]:
    """Run operators on real tensors although a compile is under way: fake and tracing modes off."""
    with outside_dispatch_modes(), torch.no_grad():
        yield


def run_without_guards(mode: Any, compute: Callable[[], Any]) -> Any:
    """Run operators on fake tensors of `mode` without a trace of guards."""
    with fake_compute(mode), mode.shape_env.suppress_guards():
        return compute()


@contextlib.contextmanager
def guards_refused(mode: Any) -> Generator[None]:
    """Run operators on fake tensors of `mode`; a new guard on symbols is an error instead.

    torch 2.13 has this (`ShapeEnv.error_on_new_guards`); 2.11 has not: there symbols are refused.

    Raises:
        RuntimeError: torch cannot refuse guards, and there are symbols.
    """
    refuse = getattr(mode.shape_env, "error_on_new_guards", None)
    if refuse is None and mode.shape_env is not None and mode.shape_env.var_to_range:
        raise RuntimeError("this version of torch cannot refuse guards")
    refusing = contextlib.nullcontext() if refuse is None else refuse()
    with without_log("torch.fx.experimental.symbolic_shapes"), fake_compute(mode), refusing:
        yield


def is_data_dependent(error: BaseException) -> bool:
    """Return whether fake tensors could not answer: data decides, or an op has no fake rule."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    kinds = (
        _fakes().DataDependentOutputException,
        _fakes().DynamicOutputShapeException,
        _fakes().UnsupportedOperatorException,
        GuardOnDataDependentSymNode,
    )
    return isinstance(error, kinds)


def has_unbacked(value: object) -> bool:
    """Return whether a value's sizes contain symbols that only run time knows."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if isinstance(value, (list, tuple)):
        return any(has_unbacked(item) for item in value)
    if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return bool(free_unbacked_symbols(value))
    return False


def new_fake_mode() -> Any:
    """Return a FakeTensorMode with its own shape environment that also takes real tensors."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return _fakes().FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def symbolic_like(tensor: torch.Tensor, mode: Any, name: str) -> torch.Tensor:
    """Return a fake tensor like a real one, with a symbol for each different size above 1."""
    source = importlib.import_module("torch._dynamo.source").ConstantSource(name)
    fake: torch.Tensor = mode.from_tensor(tensor, source=source)
    return fake


def static_like(tensor: torch.Tensor, mode: Any) -> torch.Tensor:
    """Return a fake tensor with the sizes of a real one as numbers."""
    fake: torch.Tensor = mode.from_tensor(tensor, static_shapes=True)
    return fake


@contextlib.contextmanager
def without_log(name: str = "torch._subclasses.fake_tensor") -> Generator[None]:
    """Say nothing of calls that fake tensors (or their symbols) refuse: the caller expects it.

    In torch: the loggers of these modules have their names.
    """
    log = logging.getLogger(name)
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


def guards_hold(mode: Any, fakes: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether real tensors meet all guards on the symbols of fake ones.

    An assumption of a compile (`int(size)`) is a guard: other sizes recompile.

    In torch: `SymNode._expr` (before replacements), `ShapeEnv.guards`.
    """
    known: dict[Any, int] = {}
    for fake, tensor in zip(fakes, tensors, strict=True):
        for size, value in zip(fake.shape, tensor.shape, strict=True):
            expr = size.node._expr if isinstance(size, torch.SymInt) else size
            if expr != value and known.setdefault(expr, value) != value:
                return False
            if isinstance(expr, int) and expr != value:
                return False
            known.setdefault(expr, value)
    symbols = {expr: value for expr, value in known.items() if not isinstance(expr, int)}
    return all(bool(guard.expr.subs(symbols)) for guard in mode.shape_env.guards)


@contextlib.contextmanager
def intercept_ops(
    handler: Callable[[Any, tuple[Any, ...], dict[str, Any]], object],
) -> Generator[None, None, None]:
    """Send each op below autograd, forward and backward, to `handler(op, args, kwargs)`.

    Ops that the handler calls are not intercepted. Higher-order ops arrive whole.
    """

    class Interceptor(_dispatch_modes().TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            return handler(func, args, kwargs or {})

    with Interceptor():
        yield


@dataclass(frozen=True, slots=True)
class SymbolicInputs:
    """Inputs as Dynamo hands them to a backend, and the context around the backend's call.

    Attributes:
        example_inputs: Real tensors, and a SymInt for each symbolic size.
        fakes: The same inputs as fake tensors, for `node.meta["example_value"]`. They live in a
            fake mode of their own, because running the graph on them may change their sizes.
        tracing: Makes the context that AOTAutograd asks for the fake mode and the symbols.
    """

    example_inputs: tuple[object, ...]
    fakes: tuple[object, ...]
    fake_mode: AbstractContextManager[Any]
    tracing: Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Unbacked:
    """The unbacked symbols that operators may make: for numbers and sizes that data decide.

    Without them an operator that needs one raises, and Dynamo breaks the graph there.
    """

    numbers: bool = True
    sizes: bool = True

    @staticmethod
    def configured() -> "Unbacked":
        """Return those of Dynamo's config; `fullgraph=True` allows both."""
        config = importlib.import_module("torch._dynamo.config")
        return Unbacked(config.capture_scalar_outputs, config.capture_dynamic_output_shape_ops)


def symbolic_inputs(
    inputs: Sequence[object],
    names: Sequence[str],
    symbols: Mapping[str, Sequence[str | None]],
    layouts: Mapping[str, Sequence[str | None]],
    unbacked: Unbacked,
) -> SymbolicInputs:
    """Build the inputs that Dynamo passes to a backend: real tensors, SymInts, a tracing context.

    Equal symbol names give the same symbol, different names never do, even with equal hints. A size
    of 0 or 1 is a constant, as in Dynamo.

    Args:
        symbols: For a placeholder with symbolic sizes, the name of each dimension's symbol or None;
            for a placeholder that is a size, a single name.
        layouts: For a strided tensor the names of its strides' symbols, then of its storage
            offset's; None for a number, or a stride that follows from the sizes.

    Source: `OutputGraph.compile_and_call_fx_graph` and `call_user_compiler` of Dynamo, torch 2.13:
    a second fake mode over the same ShapeEnv for the backend, and each tensor's symbolic context on
    the TracingContext.
    """
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    env = shapes.ShapeEnv(
        allow_scalar_outputs=unbacked.numbers, allow_dynamic_output_shape_ops=unbacked.sizes
    )
    known: dict[str, tuple[Any, Any]] = {}
    mode, backend_mode = (_fakes().FakeTensorMode(shape_env=env) for _ in range(2))
    context: Any = _guards().TracingContext(backend_mode)
    examples: list[object] = []
    fakes: list[object] = []
    remembered: list[object] = []  # the mode knows them by weak reference only
    for value, name in zip(inputs, names, strict=True):
        sizes = symbols.get(name, ())
        example = fake = value
        if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
            symbolic = _symbolic_context(env, known, value, name, sizes, layouts.get(name, ()))
            context.tensor_to_context[value] = symbolic
            options = {"symbolic_context": symbolic, "source": symbolic.tensor_source}
            remembered.append(backend_mode.from_tensor(value, **options))
            fake = mode.from_tensor(value, **options)
        elif isinstance(value, torch.Tensor):  # a subclass: static, as one value
            fake = mode.from_tensor(value, static_shapes=True)
        elif isinstance(value, int) and sizes and sizes[0]:
            symbol, source = _symbol(env, known, sizes[0], value)
            example = fake = env.create_symintnode(symbol, hint=value, source=source)
        examples.append(example)
        fakes.append(fake)

    @contextlib.contextmanager
    def within_context() -> Generator[None, None, None]:
        with _guards().tracing(context):
            yield
        remembered.clear()

    return SymbolicInputs(tuple(examples), tuple(fakes), mode, within_context)


def _symbol(env: Any, known: dict[str, tuple[Any, Any]], name: str, hint: int) -> tuple[Any, Any]:
    """Return the symbol called `name`, made at its first use, and its source."""
    if name not in known:
        known[name] = new_symbol(env, name, hint)
    return known[name]


def new_symbol(env: Any, name: str, hint: int) -> tuple[Any, Any]:
    """Return a new symbol of a ShapeEnv (sympy), and its source."""
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    source = importlib.import_module("torch._dynamo.source").ConstantSource(name)
    return env.create_symbol(hint, source, dynamic_dim=shapes.DimDynamic.DYNAMIC), source


def _symbolic_context(
    env: Any,
    known: dict[str, tuple[Any, Any]],
    tensor: torch.Tensor,
    name: str,
    sizes: Sequence[str | None],
    layout: Sequence[str | None],
) -> Any:
    """Return the symbolic context that gives each dimension of `tensor` its named symbol.

    Strides and offset of `layout` get theirs, or the number: torch would make symbols that no input
    has.
    """
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    sources = importlib.import_module("torch._dynamo.source")
    source = sources.ConstantSource(name)
    sizes = tuple(sizes) or (None,) * tensor.dim()
    chosen: dict[str, Any] = {}

    def choose(kind: str, index: int | None, symbol: str | None, number: int) -> None:
        part = sources.TensorPropertySource(source, sources.TensorProperty[kind], index)
        key = part.name if isinstance(part.name, str) else part.name()
        made = None if symbol is None else _symbol(env, known, symbol, number)[0]
        chosen[key] = importlib.import_module("sympy").Integer(number) if made is None else made

    for index, symbol in enumerate(sizes):
        if symbol is not None:
            choose("SIZE", index, symbol, tensor.shape[index])
    if layout:
        for index, symbol in enumerate(layout[:-1]):
            choose("STRIDE", index, symbol, tensor.stride(index))
        choose("STORAGE_OFFSET", None, layout[-1], int(tensor.storage_offset()))
    dims = shapes.DimDynamic
    return shapes.StatefulSymbolicContext(
        dynamic_sizes=[dims.DYNAMIC if symbol else dims.STATIC for symbol in sizes],
        tensor_source=source,
        shape_env_to_source_to_symbol_cache={id(env): chosen},
    )


def size_expression(value: Any) -> Any:
    """Return the sympy expression of a SymInt; any other value as it is."""
    return value.node.expr if isinstance(value, torch.SymInt) else value


def least_value(value: Any, symbol: Any) -> int:
    """Return the least value that a symbol of a SymInt's expression may have; 0 if unknown."""
    found = value.node.shape_env.var_to_range.get(symbol)
    try:
        return max(0, int(found.lower)) if found is not None else 0
    except (AttributeError, TypeError, ValueError, OverflowError):  # infinite
        return 0


_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def sparse_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return indices and values of a sparse tensor, coalesced or not; else empty."""
    if tensor.layout == torch.sparse_coo:
        whole = torch.tensor([tensor.is_coalesced(), tensor.sparse_dim()], device="cpu")
        return (whole, tensor._indices(), tensor._values())
    if tensor.layout in _ROWS:
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in _COLUMNS:
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    return ()
