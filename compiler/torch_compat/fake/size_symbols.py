"""Symbols for sizes, and the comparisons of operators: to find the sizes that belong together.

Operators on fake tensors compare sizes as they run. With a symbol of its own for each size, the
comparisons show the sizes that must stay equal:

    linear(x[s0, s1], w[s2, s3])      asks  Eq(s1, s3)           yes
    view(y[s0, s2], (s4, s5, s6))     asks  Eq(s0*s2, s4*s5*s6)  yes

Unlike in a compile, an answer replaces no symbol, so that each expression keeps the terms of the
program, and 1 is a size like others.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import importlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ctk.compiler.torch_compat.fake import fake_tensors as fake


@dataclass(slots=True)
class SizeSymbols:
    """Makes symbols and fake tensors of symbolic sizes; records each comparison once.

    Attributes:
        answers: The comparisons of operators (sympy), and their answers.
    """

    mode: Any
    hints: dict[Any, int]
    answers: dict[Any, Any]
    _made: dict[str, Any] = field(default_factory=dict[str, Any])

    def size(self, name: str, hint: int) -> Any:
        """Return the SymInt called `name`, made at its first use; `hint` is its number now."""
        if name not in self._made:
            env = self.mode.shape_env
            symbol, source = fake.new_symbol(env, name, hint)
            self._made[name] = env.create_symintnode(symbol, hint=hint, source=source)
            self.hints[symbol] = importlib.import_module("sympy").Integer(hint)
        return self._made[name]

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Run operators on tensors that have these symbols, composite ones in Python.

        In torch: `enable_python_dispatcher`. Without it `matmul` of 2.11 refuses symbols.
        """
        from torch._dispatch.python import enable_python_dispatcher

        with fake.fake_compute(self.mode), enable_python_dispatcher():
            yield

    def symbol(self, name: str) -> Any:
        """Return the sympy symbol of a name that has one."""
        return self._made[name].node.expr

    def tensor(self, like: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
        """Return a fake tensor of a dtype and device like another's."""
        with self.mode:
            return torch.empty_strided(
                list(sizes), list(strides), dtype=like.dtype, device=like.device
            )


def size_symbols() -> SizeSymbols:
    """Return symbols over a ShapeEnv that answers by hints and records the comparisons."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    hints: dict[Any, int] = {}
    answers: dict[Any, Any] = {}

    class Asked(shapes.ShapeEnv):
        """A ShapeEnv that replaces no symbols.

        In torch: `SymNode.evaluate` calls `evaluate_expr` for each `bool(...)`
        and `int(...)` of a symbolic value; `_suppress_guards_tls` suppresses the record.
        """

        def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
            if orig_expr in answers:
                return answers[orig_expr]
            answer = orig_expr.xreplace(hints)
            if answer.free_symbols:  # of a data-dependent size
                return super().evaluate_expr(orig_expr, *args, **kwargs)
            if not shapes.ShapeEnv._suppress_guards_tls():
                answers[orig_expr] = answer
            return answer

    mode = FakeTensorMode(shape_env=Asked(), allow_non_fake_inputs=True)
    mode.cache_enabled = False  # with symbols of their own no two calls are alike
    return SizeSymbols(mode, hints, answers)
