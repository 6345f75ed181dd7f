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

A compile that fails after every operator is lowered asks about the fusions before the lowerings:
the scheduler raised, and a lowering left out takes its fusions with it.

The generators of ctk (c, triton) number all changes of a graph: shared buffers, fused kernels,
lowered nodes. These are left out in that order. Values are used only as far as the log has them.
"""

from collections.abc import Sequence
from dataclasses import replace

from ctk.compiler.fx.properties import base_of
from ctk.compiler.observe import RewriteRecord
from ctk.toolkit.bisect.below_passes import Scene, operator_of, scene_of, written_bases
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.isolation import Isolation, values_read_by, views_read_by
from ctk.toolkit.bisect.questions import MOST_ALTERNATIVES, Questions
from ctk.toolkit.bisect.suspects import list_names, of_pass_id, of_rewrite
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.search.blocks import likely_causes
from ctk.toolkit.search.questions import run_search


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
    def __init__(self, scene: Scene, kernel: Culprit, ask: Questions, isolation: Isolation) -> None:
        self._scene, self._kernel, self._ask = scene, kernel, ask
        self._passes, self._isolation = ask.passes, isolation

    def find(self) -> Culprit | None:
        scene = self._scene
        if scene.is_of_loops:
            return self._rewrite()
        memory = self._switch(scene.switches(memory=True)) if scene.memory else None
        if memory is not None:
            return memory
        fusions = scene.fusions([node.name for node in scene.nodes])
        is_lowered = scene.failed and not scene.refused
        fusion = self._fusion(fusions) if is_lowered else None
        if fusion is not None:
            return fusion
        lowering = self._lowering()
        if lowering is not None:
            smaller = self._smaller(lowering)
            if smaller is None:
                return lowering
            return replace(smaller, alternatives=(*smaller.alternatives, *lowering.alternatives))
        fusion = self._fusion(fusions)
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
        causes = run_search(likely_causes(names, MOST_ALTERNATIVES), self._without_passes)
        if len(causes) > 1 or (causes and self._fails_after(causes[0])):
            return self._rank(causes)
        return self._with_writer(self._of_lowering(causes[0])) if causes else None

    def _fails_after(self, lowering: str) -> bool:
        """Return whether the lowering of another operator raised, which may not be reached now."""
        scene = self._scene
        return scene.failed and scene.refused and scene.wrong not in self._nodes_of(lowering)

    def _of_lowering(self, name: str) -> Culprit:
        return of_pass_id(name, self._nodes_of(name), self._kernel.evidence)

    def _rank(self, causes: Sequence[str]) -> Culprit:
        """Return the guilty one of several lowerings, with its alternatives.

        1. The first in the order of the graph that is wrong alone, on eager's operands.
        2. None is: the operator that reads them, if it is wrong alone.
        3. Neither is: the last one, and the others are its alternatives.
        """
        names = sorted(causes, key=lambda name: self._position(self._nodes_of(name)))
        wrong = {name: self._isolation.is_wrong(self._nodes_of(name)) for name in names}
        guilty = next((name for name in names if wrong[name]), None)
        culprit = self._of_lowering(guilty) if guilty is not None else self._reader(names)
        if culprit is None:
            return replace(self._of_lowering(names[-1]), alternatives=tuple(names[:-1]))
        others = [name for name in names if name != culprit.where]
        self._ask.notes += [
            f"it passes without {name} too, but compiled alone on eager's operands"
            f" {operator_of(name)} is right and {operator_of(culprit.where)} is wrong"
            for name in others
            if wrong[name] is False
        ]
        left = tuple(name for name in others if wrong[name] is not False)
        return replace(culprit, alternatives=left)

    def _with_writer(self, reader: Culprit) -> Culprit:
        """Return a culprit with the node that writes to the memory it reads, if it is right alone.

        The order of the two may be wrong, and a reader that falls back reads at once.
        """
        nodes = [node for node in self._scene.nodes if node.name in reader.nodes]
        read = {base_of(operand) for node in nodes for operand in node.all_input_nodes}
        writer = next((w for w in self._scene.writers if read & written_bases(w)), None)
        if writer is None or self._isolation.is_wrong(reader.nodes) is not False:
            return reader
        lowering = self._scene.lowering_of(writer)
        is_enough = lowering is not None and self._without_passes([lowering])
        proof = (
            "when that operator alone falls back to ATen the case passes; compiled alone on eager's"
            f" operands it is right too: {writer.name} writes to the memory that it reads"
        )
        alternatives = (lowering,) if lowering is not None and is_enough else ()
        nodes = (*reader.nodes, writer.name)
        return replace(reader, nodes=nodes, proof=proof, alternatives=alternatives)

    def _reader(self, names: Sequence[str]) -> Culprit | None:
        """Return the operator that is wrong alone where it reads these lowerings' values.

        Left out with the views through which it reads, which are right by themselves.
        """
        read = {node for name in names for node in self._nodes_of(name)}
        known = self._scene.lowerings
        for node in self._scene.nodes:
            lowering = known.get(str(node.target))
            views = views_read_by(node)
            sources = {each.name for each in (*views, *values_read_by(node))}
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

    def _switch(self, names: Sequence[str]) -> Culprit | None:
        causes = run_search(likely_causes(names, MOST_ALTERNATIVES), self._without_passes)
        if not causes:
            return None
        culprit = of_pass_id(causes[0], self._kernel.nodes, self._kernel.evidence)
        return replace(culprit, alternatives=causes[1:])

    def _fusion(self, fusions: Sequence[RewriteRecord]) -> Culprit | None:
        by_number = {str(fusion.id.number): fusion for fusion in fusions}
        causes = run_search(
            likely_causes(list(by_number), MOST_ALTERNATIVES), self._without_fusions
        )
        if not causes:
            return None
        found, *others = (self._of_fusion(by_number[number]) for number in causes)
        return replace(found, alternatives=tuple(map(str, others)))

    def _of_fusion(self, rewrite: RewriteRecord) -> Culprit:
        record = next(p for p in self._scene.passes if p.id == rewrite.id.pass_id)
        return of_rewrite(rewrite, len(record.rewrites), self._kernel.evidence)

    def _without_passes(self, names: Sequence[str]) -> bool:
        return self._passes(Veto(passes=frozenset(names)), f"without {list_names(names)}")

    def _without_fusions(self, numbers: Sequence[str]) -> bool:
        kind = "rewrite" if self._scene.is_of_loops else "fusion"
        what = f"without {kind} {list_names(numbers)}"
        return self._passes(Veto(rewrites=frozenset(map(int, numbers))), what)
