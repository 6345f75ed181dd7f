r"""The texts that a graph of a stranger may hand to an operator: words, and messages of assertions.

Compilers paste texts into the programs that they generate, not always escaped: Inductor writes
`throw std::runtime_error("MESSAGE")` into C++, and with `cpp_wrapper` any text of an operator. So
without trust a text has no character that could end a string, a line or a comment there:

    einsum("bij,bjk->bik", ...)             words: taken anywhere
    _assert_async(x, "it's too small")      a message: taken where torch expects one
    _assert_async(x, '"); system("id'       refused: it ends the string
    operator.mod("%c", 34)                  refused: no text from which one could be computed

What it does not do: names (`names`), numbers and values of other kinds: those are written as `repr`
writes them.
"""

import re
from collections.abc import Iterable

_WORDS = re.compile(r"[\w .,:;<>=+\-]*", re.ASCII)
_MESSAGE_TAKERS = re.compile(r"(_functional)?_assert\w*|_check\w*|_saved_tensors_hooks_disable")
_ENDS_A_STRING = re.compile(r"[\"\\`]|''|\?\?")
"""`''` may become three, the end of a kernel's text in Python; `??/` was a backslash in C++."""


def unsafe_text(op: str, target: str, leaves: Iterable[object]) -> str | None:
    """Return the first text among a node's arguments that only a trusted case may have.

    Args:
        op: The op of the node.
        target: Its target as a graph in JSON names it.
        leaves: Its arguments, keys of dictionaries included.
    """
    takes_message = op == "call_function" and _takes_message(target)
    texts = (leaf for leaf in leaves if isinstance(leaf, str))
    return next((text for text in texts if not _is_harmless(text, takes_message)), None)


def _takes_message(target: str) -> bool:
    """Return whether a function of torch only ever raises an error with its text."""
    return target.startswith("torch.") and any(
        _MESSAGE_TAKERS.fullmatch(part) for part in target.split(".")
    )


def _is_harmless(text: str, is_message: bool) -> bool:
    if _WORDS.fullmatch(text):
        return True
    return is_message and text.isprintable() and not _ENDS_A_STRING.search(text)
