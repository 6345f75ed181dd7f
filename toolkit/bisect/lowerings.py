"""Find the lowering, fusion or option that makes a kernel wrong, of Inductor or of ctk.

A kernel that is a whole graph hides much. Each part of it that the log names is left out, in an
order that takes few compiles; a part without which alone the case passes is the culprit. Example: a
kernel computes `abs`, `neg` and `sum`, and `sum` is wrong:

    lowerings of the wrong value's operators    without lower.aten.abs.default   reproduces
                                                without lower.aten.neg.default   passes
    fusions that `neg` took part in             none: it is the lowering of neg

1. The options that decide which values share memory, if a kernel read another value than was
   written, or if each kernel is right and the graph is wrong: any other change moves memory too.
2. The lowerings, from the inputs of the kernel to its first wrong value, views last: an operator
   that falls back also has its operands in memory, which hides errors in how they are written into
   its loop. When the compile failed, from the failing operator backwards: without an operator
   before it, the failing one may not even be reached.
   Of several without which alone the case passes, the guilty one is wrong by itself, on eager's
   operands (`isolation.py`); if none is, the others are its alternatives.
3. If one is found, the fusions of its nodes, and whether the kernel overwrites its input:
   forbidding these changes less than falling back, which forbids both.
4. Without a lowering: all fusions of the kernel, then the other options.

The generators of ctk (c, triton) number all changes of a graph: shared buffers, fused kernels,
lowered nodes. These are left out in that order. Values are used only as far as the log has them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ctk.compiler.observe import RewriteRecord
from ctk.toolkit.bisect.below_passes import Scene, operator_of, scene_of
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.isolation import Isolation, views_read_by
from ctk.toolkit.bisect.questions import Questions
from ctk.toolkit.bisect.suspects import list_names, of_pass_id, of_rewrite
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.search.blocks import every_cause, likely_cause
from ctk.toolkit.search.questions import run_search

MOST_ALTERNATIVES = 4


def find_below(culprit: Culprit, log: CompileLog, ask: Questions) -> Culprit | None:
    """Return the part that makes a kernel wrong, confirmed; None if no part does so by itself."""
    scene = scene_of(culprit, log)
    if scene is None:
        return None
    found = _Search(scene, culprit, ask, Isolation(ask, log, scene.graph)).find()
    return replace(found, excerpt=scene.excerpt) if found is not None else None


def with_excerpt(culprit: Culprit, log: CompileLog) -> Culprit:
    """Return a kernel with the lines of its source that compute the wrong value."""
    scene = scene_of(culprit, log) if culprit.is_kernel else None
    return replace(culprit, excerpt=scene.excerpt) if scene is not None else culprit


class _Search:
    def __init__(
        self, scene: Scene, kernel: Culprit, ask: Questions, isolation: Isolation
    ) -> None:
        self._scene, self._kernel, self._ask = scene, kernel, ask
        self._passes, self._isolation = ask.passes, isolation

    def find(self) -> Culprit | None:
        scene = self._scene
        if scene.is_of_loops:
            return self._rewrite()
        memory = self._switch(scene.switches(memory=True)) if scene.memory else None
        if memory is not None:
            return memory
        lowering = self._lowering()
        if lowering is not None:
            return self._smaller(lowering) or lowering
        suspected = [node.name for node in scene.nodes]
        fusion = self._fusion(scene.fusions(suspected))
        if fusion is not None:
            return fusion
        rest = scene.switches(memory=False)
        return self._switch(rest if scene.memory else [*scene.switches(memory=True), *rest])

    def _rewrite(self) -> Culprit | None:
        """Return the shared buffer or the fusion that is wrong, or the kernel with its node.

        In an order of decreasing effect on the rest: without a fusion memory is shared in other
        ways, and a node that is not lowered is not fused.
        """
        scene = self._scene
        part = scene.part.nodes if scene.part is not None else [n.name for n in scene.nodes]
        for rewrites in (scene.sharings, scene.fusions(part)):
            numbers = [str(rewrite.id.number) for rewrite in rewrites]
            if numbers and self._without_fusions(numbers):
                return self._fusion(rewrites) or self._fusions(rewrites)
        lowering = self._fusion(scene.rewrites(("lower",), part))
        return replace(self._kernel, nodes=lowering.nodes) if lowering is not None else None

    def _smaller(self, lowering: Culprit) -> Culprit | None:
        """Return a fusion, or a buffer written in place, that explains as much as an operator."""
        fusions = self._scene.fusions(lowering.nodes)
        in_place = self._scene.switches(memory=True, of_part=True)
        numbers = frozenset(fusion.id.number for fusion in fusions)
        both = Veto(passes=frozenset(in_place), rewrites=numbers)
        what = "without its fusions and buffers written in place"
        if both == Veto() or not self._passes(both, what):
            return None
        return self._fusion(fusions) or self._switch(in_place) or self._fusions(fusions)

    def _fusions(self, fusions: Sequence[RewriteRecord]) -> Culprit | None:
        """Return fusions that must all go; the first one stands for them."""
        numbers = [str(fusion.id.number) for fusion in fusions]
        if len(numbers) < 2 or not self._without_fusions(numbers):
            return None
        nodes = tuple(dict.fromkeys(name for fusion in fusions for name in fusion.nodes))
        veto = Veto(rewrites=frozenset(fusion.id.number for fusion in fusions))
        return replace(self._of_fusion(fusions[0]), nodes=nodes, veto=veto)

    def _lowering(self) -> Culprit | None:
        """Return the guilty lowering: of several without which it passes, the one wrong alone."""
        names = list(self._scene.lowerings.values())
        guilty, *others = self._every_cause(names, self._without_passes) or [None]
        if guilty is None:
            return None
        if others:
            return self._rank([name for name in names if name in (guilty, *others)])
        return of_pass_id(guilty, self._nodes_of(guilty), self._kernel.evidence)

    def _rank(self, names: Sequence[str]) -> Culprit:
        """Return the guilty one of several lowerings, with those that may be guilty instead.

        1. The first in the order of the graph that is wrong alone, on eager's operands.
        2. None is: the operator that reads them, if it is wrong alone.
        3. Neither is: the last one, and the others are its alternatives.
        """
        names = sorted(names, key=lambda name: self._position(self._nodes_of(name)))
        wrong = {name: self._isolation.is_wrong(self._nodes_of(name)) for name in names}
        guilty = next((name for name in names if wrong[name]), None)
        reader = self._reader(names) if guilty is None else None
        if guilty is not None:
            culprit = of_pass_id(guilty, self._nodes_of(guilty), self._kernel.evidence)
        elif reader is not None:
            culprit = reader
        else:
            culprit = of_pass_id(names[-1], self._nodes_of(names[-1]), self._kernel.evidence)
        others = [name for name in names if name != culprit.where]
        is_known = guilty is not None or reader is not None
        for name in others:
            if is_known and wrong[name] is False:
                self._ask.innocent.append(
                    f"it passes without {name} too, but compiled alone on eager's operands"
                    f" {operator_of(name)} is right and {operator_of(culprit.where)} is wrong"
                )
        left = [name for name in others if not (is_known and wrong[name] is False)]
        return replace(culprit, alternatives=tuple(left))

    def _reader(self, names: Sequence[str]) -> Culprit | None:
        """Return the operator that is wrong alone where it reads these lowerings' values.

        Left out with the views through which it reads, which are right by themselves.
        """
        read = {node for name in names for node in self._nodes_of(name)}
        known = self._scene.lowerings
        for node in self._scene.nodes:
            lowering = known.get(str(node.target))
            views = views_read_by(node)
            sources = {each.name for each in (*views, *node.all_input_nodes)}
            if lowering is None or lowering in names or read.isdisjoint(sources):
                continue
            if not self._isolation.is_wrong([node.name]):
                continue
            through = [known[str(v.target)] for v in views if str(v.target) in known]
            if self._without_passes([lowering, *through]):
                veto = Veto(passes=frozenset((lowering, *through)))
                views_too = f" with the views that it reads ({list_names(through)})"
                proof = (
                    f"when that operator{views_too if through else ''} falls back to ATen the case"
                    " passes, and compiled alone on eager's operands it is wrong"
                )
                culprit = of_pass_id(lowering, (node.name,), self._kernel.evidence)
                return replace(culprit, veto=veto, proof=proof)
        return None

    def _nodes_of(self, lowering: str) -> tuple[str, ...]:
        return self._scene.nodes_of(operator_of(lowering))

    def _position(self, names: Sequence[str]) -> int:
        order = [node.name for node in self._scene.graph.graph.nodes]
        return min(map(order.index, names), default=len(order))

    def _every_cause(
        self, names: Sequence[str], is_cause: Callable[[Sequence[str]], bool]
    ) -> list[str]:
        """Return the atoms without which alone the case passes, the likeliest first."""
        first = run_search(likely_cause(names), is_cause)
        if first is None:
            return []
        others = [name for name in names if name != first]
        return [first, *run_search(every_cause(others, MOST_ALTERNATIVES), is_cause)]

    def _switch(self, names: Sequence[str]) -> Culprit | None:
        guilty, *others = self._every_cause(names, self._without_passes) or [None]
        if guilty is None:
            return None
        culprit = of_pass_id(guilty, self._kernel.nodes, self._kernel.evidence)
        return replace(culprit, alternatives=tuple(others))

    def _fusion(self, fusions: Sequence[RewriteRecord]) -> Culprit | None:
        by_number = {str(fusion.id.number): fusion for fusion in fusions}
        guilty, *others = self._every_cause(list(by_number), self._without_fusions) or [None]
        if guilty is None:
            return None
        others = tuple(str(self._of_fusion(by_number[number])) for number in others)
        return replace(self._of_fusion(by_number[guilty]), alternatives=others)

    def _of_fusion(self, rewrite: RewriteRecord) -> Culprit:
        record = next(p for p in self._scene.passes if p.id == rewrite.id.pass_id)
        return of_rewrite(rewrite, len(record.rewrites), self._kernel.evidence)

    def _without_passes(self, names: Sequence[str]) -> bool:
        return self._passes(Veto(passes=frozenset(names)), f"without {list_names(names)}")

    def _without_fusions(self, numbers: Sequence[str]) -> bool:
        kind = "rewrite" if self._scene.is_of_loops else "fusion"
        what = f"without {kind} {list_names(numbers)}"
        return self._passes(Veto(rewrites=frozenset(map(int, numbers))), what)
