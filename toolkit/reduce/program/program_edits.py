"""Small edits of a program: each makes it smaller by the order of `size_of`, and may break it.

    if c: a  else: b      ->  a, b            f(x, y)        ->  x, y
    for i in n: a         ->  i = next(iter(n)); a           x.f(y)  ->  x, y
    with c: a, try: a     ->  a               a + b          ->  a, b
    t = e; return f(t)    ->  return f(e)     f(x, k=1)      ->  f(x)
    def f(x, unused)      ->  def f(x), at its calls and in `inputs()` too
    class M: forward      ->  def program, if it has nothing but `forward`, which needs no `self`
    randn(16, 64)         ->  randn(2, 64), and 16 in the whole program

`statement_search` drops statements and asks the oracle.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

from ctk.toolkit.reduce.program.syntax import ENTRIES, blocks_of, copy_tree, number_of

Edit = Callable[[], ast.Module]
"""Makes the edited copy."""

Kind = Callable[[ast.Module], Iterator[Edit]]
"""Proposes the edits of one kind for a tree, in a fixed order."""

Expressions = list[ast.expr]


def _edit(tree: ast.Module, node: ast.AST, change: Callable[..., object], *how: object) -> Edit:
    """Return the edit that calls `change(copy of the tree, its copy of the node, *how)`."""

    def edited() -> ast.Module:
        made, nodes = copy_tree(tree)
        change(made, nodes[number_of(node)], *how)
        return made

    return edited


def unwrap_blocks(tree: ast.Module) -> Iterator[Edit]:
    """Propose a compound statement's blocks in its place."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
            for which, _ in enumerate(blocks_of(node)):
                yield _edit(tree, node, _unwrap, which)


def _unwrap(made: ast.Module, node: ast.stmt, which: int) -> None:
    inner = list(list(blocks_of(node))[which])
    if isinstance(node, ast.For) and which == 0:
        first = ast.parse("next(iter(x))", mode="eval").body
        cast("ast.Call", cast("ast.Call", first).args[0]).args = [node.iter]
        inner.insert(0, ast.Assign([node.target], first, lineno=node.lineno))
    if isinstance(node, ast.With) and which == 0:
        named = [item for item in node.items if item.optional_vars is not None]
        inner[:0] = [
            ast.Assign([cast("ast.expr", item.optional_vars)], item.context_expr, lineno=0)
            for item in named
        ]
    _replace_statement(made, node, inner)


def _replace_statement(made: ast.Module, old: ast.stmt, new: Sequence[ast.stmt]) -> None:
    for block in (block for each in ast.walk(made) for block in blocks_of(each)):
        if old in block:
            place = block.index(old)
            block[place : place + 1] = new
            return


def smaller_expressions(tree: ast.Module) -> Iterator[Edit]:
    """Propose parts of an expression in its place, larger expressions first."""
    for node in ast.walk(tree):
        for which in range(len(_parts(node))):
            yield _edit(tree, node, _take_part, which)


def _take_part(made: ast.Module, node: ast.AST, which: int) -> None:
    replace_node(made, node, _parts(node)[which])


def _parts(node: ast.AST) -> Expressions:
    match node:
        case ast.Call(func=ast.Attribute(value=value), args=args):
            return [value, *_plain(args)]
        case ast.Call(args=args, keywords=keywords):
            return [*_plain(args), *(keyword.value for keyword in keywords)]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.BoolOp(values=values):
            return values
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Compare(left=left, comparators=comparators):
            return [left, *comparators]
        case (
            ast.UnaryOp(operand=part)
            | ast.Subscript(value=part, ctx=ast.Load())
            | ast.Attribute(value=part, ctx=ast.Load())
            | ast.NamedExpr(value=part)
            | ast.Await(value=part)
            | ast.Tuple(elts=[part], ctx=ast.Load())
            | ast.List(elts=[part], ctx=ast.Load())
            | ast.ListComp(elt=part)
            | ast.GeneratorExp(elt=part)
        ):
            return [part]
        case _:
            return []


def _plain(args: Expressions) -> Expressions:
    return [arg.value if isinstance(arg, ast.Starred) else arg for arg in args]


def replace_node(made: ast.Module, old: ast.AST, new: ast.AST) -> None:
    """Put a node in the place of another."""
    for parent in ast.walk(made):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(each is old for each in cast("list[object]", value)):
                items = cast("list[object]", value)
                items[next(i for i, each in enumerate(items) if each is old)] = new
                return


def fewer_items(tree: ast.Module) -> Iterator[Edit]:
    """Propose to drop decorators, base classes, arguments, and items of lists, tuples and dicts."""
    for node in ast.walk(tree):
        for field in ("decorator_list", "bases", "keywords", "args", "elts", "items", "handlers"):
            found = getattr(node, field, None)
            if isinstance(found, list):
                items = cast("list[object]", found)
                for index in reversed(range(len(items))):
                    yield _edit(tree, node, _drop_item, index, field)
        if isinstance(node, ast.Dict):
            for index in reversed(range(len(node.keys))):
                yield _edit(tree, node, _drop_item, index, "keys", "values")


def _drop_item(made: ast.Module, node: ast.AST, index: int, *fields: str) -> None:
    for field in fields:
        del getattr(node, field)[index]


def inline_variables(tree: ast.Module) -> Iterator[Edit]:
    """Propose the value of a variable in the place of its only use, and of a function's result."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if len(node.targets) == 1 and len(_loads(tree, name)) == 1 == len(_stores(tree, name)):
                yield _edit(tree, node, _inline)
        if isinstance(node, ast.Call) and _function_of_call(tree, node):
            yield _edit(tree, node, _inline_call)


def _loads(tree: ast.AST, name: str) -> list[ast.Name]:
    return [each for each in _names(tree, name) if isinstance(each.ctx, ast.Load)]


def _stores(tree: ast.AST, name: str) -> list[ast.Name]:
    return [each for each in _names(tree, name) if isinstance(each.ctx, ast.Store)]


def _names(tree: ast.AST, name: str) -> list[ast.Name]:
    return [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == name]


def _inline(made: ast.Module, node: ast.Assign) -> None:
    use = _loads(made, cast("ast.Name", node.targets[0]).id)[0]
    replace_node(made, use, node.value)
    _replace_statement(made, node, [])


def _function_of_call(tree: ast.Module, call: ast.Call) -> ast.FunctionDef | None:
    """Return the function of the file that a call means, if that only returns an expression."""
    if not isinstance(call.func, ast.Name) or call.keywords:
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == call.func.id:
            is_plain = len(node.body) == 1 and isinstance(node.body[0], ast.Return)
            fits = len(node.args.args) == len(call.args) and not node.decorator_list
            return node if is_plain and fits and node.name not in ENTRIES else None
    return None


def _inline_call(made: ast.Module, call: ast.Call) -> None:
    function = cast("ast.FunctionDef", _function_of_call(made, call))
    result = cast("ast.Return", function.body[0]).value or ast.Constant(None)
    given = {arg.arg: value for arg, value in zip(function.args.args, call.args, strict=True)}

    class Filled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return given.get(node.id, node)

    private, _ = copy_tree(ast.Module([ast.Expr(result)], []))
    filled = cast("ast.Expr", Filled().visit(private).body[0]).value
    replace_node(made, call, filled)
    if not _loads(made, function.name):
        made.body.remove(function)


def fewer_parameters(tree: ast.Module) -> Iterator[Edit]:
    """Propose to drop a parameter that its function does not use, at its calls too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for index, arg in enumerate(node.args.args):
                if not any(_names(each, arg.arg) for each in node.body) and arg.arg != "self":
                    yield _edit(tree, node, _drop_parameter, index)


def _drop_parameter(made: ast.Module, function: ast.FunctionDef, index: int) -> None:
    args, defaults = function.args.args, function.args.defaults
    place = index - (len(args) - len(defaults))
    if place >= 0:
        del defaults[place]
    offset = index - (bool(args) and args[0].arg == "self")
    del args[index]
    for call in (each for each in ast.walk(made) if isinstance(each, ast.Call)):
        name = getattr(call.func, "id", getattr(call.func, "attr", None))
        if name == function.name and offset < len(call.args):
            del call.args[offset]
    if not any(_means(call, function.name) for call in ast.walk(made)):
        _drop_input(made, offset)


def _means(call: ast.AST, name: str) -> bool:
    return isinstance(call, ast.Call) and getattr(call.func, "id", None) == name


def _drop_input(made: ast.Module, offset: int) -> None:
    """Drop an item of each tuple that `inputs` and `warmups` return."""
    for node in made.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("inputs", "warmups"):
            for each in ast.walk(node):
                if isinstance(each, ast.Tuple) and offset < len(each.elts):
                    del each.elts[offset]


def modules_as_functions(tree: ast.Module) -> Iterator[Edit]:
    """Propose a function for a class that has only a `forward`, which needs no `self`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and len(node.body) == 1:
            only = node.body[0]
            if not isinstance(only, ast.FunctionDef) or only.name not in ("forward", "__call__"):
                continue
            if not any(_names(each, "self") for each in only.body):
                yield _edit(tree, node, _make_function)


def _make_function(made: ast.Module, node: ast.ClassDef) -> None:
    function = cast("ast.FunctionDef", node.body[0])
    function.name, function.args.args = node.name.lower(), function.args.args[1:]
    if function.name in ENTRIES:
        function.name = "program"
    replace_node(made, node, function)
    for call in [each for each in ast.walk(made) if isinstance(each, ast.Call)]:
        if isinstance(call.func, ast.Attribute) and _means(call.func.value, node.name):
            replace_node(made, call, call.func.value)  # M().eval()
    for call in [each for each in ast.walk(made) if _means(each, node.name)]:
        replace_node(made, call, ast.Name(function.name, ast.Load()))


def smaller_constants(tree: ast.Module) -> Iterator[Edit]:
    """Propose smaller numbers: everywhere in the program at once, then one at a time."""
    numbers = dict[int, float]()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, (int, float)) and abs(value) > 1:
            numbers[number_of(node)] = value
    for value in sorted(set(numbers.values()), reverse=True):
        same = tuple(number for number, known in numbers.items() if known == value)
        for smaller in _smaller(value):
            yield partial(_with_constant, tree, same, smaller)
            if len(same) > 1:
                yield from (partial(_with_constant, tree, (one,), smaller) for one in same)


def _smaller(value: float) -> list[float]:
    if isinstance(value, int):
        return sorted({1, 2, value // 2} - {value})
    return [1.0]


def _with_constant(tree: ast.Module, numbers: tuple[int, ...], value: float) -> ast.Module:
    made, nodes = copy_tree(tree)
    for number in numbers:
        cast("ast.Constant", nodes[number]).value = value
    return made


KINDS: tuple[Kind, ...] = (
    unwrap_blocks,
    inline_variables,
    modules_as_functions,
    fewer_parameters,
    fewer_items,
    smaller_expressions,
    smaller_constants,
)
"""In the order in which they are tried."""
