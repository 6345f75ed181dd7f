"""The pass contract. The page to read before writing a pass.

A pass is a frozen dataclass; its fields are its options, and it changes graphs through a
`Rewriter`:

    @dataclass(frozen=True, slots=True)
    class PadProducts(Pass):
        '''Pad matrix products to sizes that their kernels like.

        Attributes:
            min_gain: Skip a product if padding saves a smaller part of its time.
        '''

        name = "pad_products"
        numerics = "reassociates"
        min_gain: float = 0.1

        def run(self, rewriter: Rewriter) -> None:
            for node in rewriter.nodes():
                if node.target is aten.mm.default and _gain(node) >= self.min_gain:
                    edit = partial(_pad, rewriter, node)
                    rewriter.rewrite("mm(a, b) -> padded mm", [node], edit)

    PASS = PadProducts()

Users set the option with `Config(passes={"pad_products": {"min_gain": 0.2}})`, with
`--config pad_products.min_gain=0.2`, or for one stage with `joint/pad_products.min_gain`
(`options.py`). A pass without options has no fields and needs no decorator.

A module whose pass has no table of rules offers programs that the pass changes. `ctk verify-rules`
draws more programs from them (a parameter becomes a constant of the graph):

    def examples() -> list[Example]:
        return [(lambda a, b: torch.mm(a, b), (torch.ones(3, 5), torch.ones(5, 7)))]
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ctk.compiler.observe import Numerics
from ctk.compiler.rewriting.rewriter import Rewriter

Example = tuple[Callable[..., object], Sequence[Tensor]]
"""A function of tensors that a pass changes, and inputs."""


@dataclass(frozen=True, slots=True)
class Pass(ABC):
    """A named graph transformation; the fields of a subclass are its options.

    Attributes:
        name: Unique within its stage's table.
        numerics: Its effect on values: `exact`, `reassociates` or `lowers_precision`.
    """

    name: ClassVar[str]
    numerics: ClassVar[Numerics] = "exact"

    @abstractmethod
    def run(self, rewriter: Rewriter) -> None:
        """Apply the pass to one graph through its rewriter.

        Called for the root and each nested sub-graph, innermost first. A second run right after
        the first must change nothing.
        """
