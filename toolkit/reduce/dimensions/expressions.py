"""Read the text of a symbolic size (`2*s77 + 1`) as an expression, without executing it.

Texts come with cases, and cases from strangers: sympy's own reader runs them as Python.
"""

import ast
from collections.abc import Mapping
from typing import Any

import sympy


def size_expression_of(text: str, symbols: Mapping[str, Any]) -> Any | None:
    """Return the sympy expression of a text; None if more than + - * is in it.

    Args:
        text: Names, whole numbers, and operators.
        symbols: What each name stands for.
    """
    try:
        return _expression(ast.parse(text, mode="eval").body, symbols)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _expression(tree: ast.expr, symbols: Mapping[str, Any]) -> Any:
    match tree:
        case ast.Name(name) if name in symbols:
            return symbols[name]
        case ast.Constant(int(number)):
            return sympy.Integer(number)
        case ast.BinOp(left, ast.Add(), right):
            return _expression(left, symbols) + _expression(right, symbols)
        case ast.BinOp(left, ast.Sub(), right):
            return _expression(left, symbols) - _expression(right, symbols)
        case ast.BinOp(left, ast.Mult(), right):
            return _expression(left, symbols) * _expression(right, symbols)
        case _:
            raise ValueError(f"no size: {ast.dump(tree)[:60]}")
