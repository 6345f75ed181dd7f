"""The record of one observed Inductor compile: stages, graphs and open passes.

A `CompileRecord` lives as long as the compiled callable, because a backward graph may be compiled
at the first backward call. It turns the events of the hooks (`hooks`, `patterns`) into records for
the observer; a `Numbering` gives the ids. It wraps nothing itself.

The records of one stage form a chain: `before` of each is `after` of the one before it (the same
object). A change that no pass announced becomes a record of its own, `unannounced_before_NAME` or
`unannounced_at_end`. For example, in the joint stage, where G0 to G3 are copies of the graph:

    Inductor                                    the observer gets
    enters the stage                            StageRecord("joint", G0)
    applies two matches of one pattern          PassRecord("fuse_attention._sfdp_pattern_2", G0, G1,
                                                  rewrites 1 and 2: the matches)
    changes the graph, announces nothing        PassRecord("unannounced_before_remove_noop_ops",
                                                  G1, G2, rewrites read off the difference)
    runs the pass `remove_noop_ops`             PassRecord("remove_noop_ops", G2, G3, likewise)
"""

import threading
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Self

from torch.fx import GraphModule

from ctk.compiler.dispatch.decompositions import Decompositions
from ctk.compiler.dispatch.fake_kernels import FakeKernels
from ctk.compiler.fx.adopt import adopt
from ctk.compiler.fx.same import GraphState, same_inputs, state_of
from ctk.compiler.fx.walk import contains
from ctk.compiler.observe import (
    Numerics,
    Observer,
    PassId,
    PassRecord,
    RewriteId,
    RewriteRecord,
    Stage,
    StageRecord,
)
from ctk.compiler.rewriting.effect_split import number_effect
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.targets.inductor.frames import Attempt, Frame, KernelVetoed, PatternRun
from ctk.toolkit.targets.inductor.lowering import Lowering
from ctk.toolkit.targets.inductor.snapshot import snapshot

EXACT_PASSES = frozenset(
    {
        "canonicalize_aten_ir_passes",
        "chain_random_ops_ordering",
        "decompose_auto_functionalized",
        "decompose_map_to_while_loop",
        "decompose_scan_to_while_loop",
        "decompose_triton_kernel_wrapper_functional",
        "deduplicate_wait_tensors",
        "fix_auto_functionalized_dtype_views",
        "move_constructors_to_cuda",
        "numpy_compat_normalization",
        "quant_lift_up",
        "reinplace_inplaceable_ops",
        "remove_assert_ops",
        "remove_noop_ops",
        "remove_profiler_ops",
        "reorder_for_locality",
        "respecialize_current_device",
        "sink_cat_after_pointwise",
        "slice_scatter_chunking",
        "stable_sort",
        "view_to_reshape",
    }
)
"""Passes of Inductor that move, drop or rename work but compute each value with the same operators.

Inductor declares no numerics. Source: `torch/_inductor/fx_passes` of torch 2.13 to 2.15; every
other pass counts as `reassociates`. So does `constant_fold_uniform_value`: in torch 2.15 it drops a
bias of zeros from attention, and another kernel computes the rest. A test holds this table to the
passes of the installed torch.
"""


class CompileRecord:
    """The state of one observed compile."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.numbering = Numbering(observer)
        self.decompositions = Decompositions(self.numbering, self._is_busy)
        self.fake_kernels = FakeKernels(self.numbering)
        self.frames: list[Frame] = []
        self.in_patterns = False
        self._skipped: list[object] = []
        self._muted = 0
        self._owner: int | None = None
        self._depth = 0
        self._refused: defaultdict[str, list[Attempt]] = defaultdict(list)

    @contextmanager
    def attach(self) -> Generator[bool]:
        """Record the announcements of this thread; yields whether this is the outermost region.

        The caller holds the compile lock: one thread at a time.
        """
        outer, self._owner = self._owner, threading.get_ident()
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1
            self._owner = outer

    @contextmanager
    def mute(self) -> Generator[None]:
        """Ignore announcements inside: they are not about the user's graph."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    @contextmanager
    def matching(self) -> Generator[None]:
        """Apply a table of patterns: its matches are rewrites, its announcements are ignored."""
        self.in_patterns = True
        try:
            yield
        finally:
            self.in_patterns = False

    @contextmanager
    def skipping(self, announcer: object) -> Generator[None]:
        """Ignore the `with` region of a GraphTransformObserver that was given a pass to run.

        It opens one around that pass, which `hooks` reports already.
        """
        self._skipped.append(announcer)
        try:
            yield
        finally:
            self._skipped.pop()

    def is_covered(self, announcer: object) -> bool:
        """Return whether an announcer's `with` region lies in a pass that is reported anyway."""
        return self.in_patterns or any(announcer is other for other in self._skipped)

    def is_watching(self) -> bool:
        """Return whether this thread's announcements are about the graph of this compile."""
        return self._owner == threading.get_ident() and not self._muted

    def watching(self) -> Self | None:
        """Return this record while `is_watching`; else None."""
        return self if self.is_watching() else None

    def _is_busy(self) -> bool:
        """Return whether a stage is open: graphs traced then (patterns) are not the user's."""
        return bool(self.frames) or not self.is_watching()

    def frame(self) -> Frame | None:
        """Return the frame at hand, if this thread's announcements belong to one."""
        return self.frames[-1] if self.frames and self.is_watching() else None

    def lowering(self) -> Lowering | None:
        """Return the lowering of the graph at hand, once it was handed to code generation."""
        frame = self.frame()
        return frame.lowering if frame is not None else None

    def frame_of(self, gm: GraphModule | None) -> Frame | None:
        """Return the frame at hand; take `gm` for its graph if a pass replaced the graph object."""
        frame = self.frame()
        if frame is None or gm is None:
            return None
        if not contains(frame.root, gm, frame.swaps):
            if len(frame.path) > 1:
                frame.swaps[frame.path[-1]] = gm
            else:
                frame.root = gm
                frame.path[0] = gm
        return frame

    def open(self, stage: Stage, gm: GraphModule, inputs: Sequence[object]) -> Frame:
        """Announce a stage: its graph as it is now."""
        if stage in ("joint", "forward"):
            self.decompositions.report()
            for operator in self.decompositions.kept:
                inductor.let_fall_back(operator)
        copy = snapshot(gm)
        frame = Frame(stage, gm, tuple(inputs), copy, state_of(gm), [gm])
        self.frames.append(frame)
        self.observer.on_stage(StageRecord(stage, copy, frame.inputs))
        return frame

    def close(self, frame: Frame, result: object = None) -> None:
        """Leave a stage, and report changes since the last pass.

        Args:
            frame: The innermost frame.
            result: The graph that the stage returned, if it returned one.
        """
        if isinstance(result, GraphModule) and result is not frame.root:
            frame.root = result
        self.sync(frame, "unannounced_at_end")
        self.drop(frame)

    def drop(self, frame: Frame) -> None:
        """Leave a stage without a report (it was reported, or it failed)."""
        if frame in self.frames:
            del self.frames[self.frames.index(frame) :]

    def sync(self, frame: Frame, name: str) -> None:
        """Report changes since the last record, as a pass called `name`.

        A veto undoes them, unless the inputs of the graph changed: the caller already uses those.
        """
        self.end_run(frame)
        if state_of(frame.root, frame.swaps) == frame.mark:
            return
        pass_id = self.numbering.pass_id(frame.stage, name)
        if self.numbering.allow_pass(pass_id) or not same_inputs(frame.root, frame.last):
            self.end_pass(frame, pass_id, seconds=0.0)
        else:
            self.undo(frame, pass_id)

    def undo(self, frame: Frame, pass_id: PassId) -> None:
        """Undo the changes since the last record, and report a vetoed pass."""
        frame.mark = _put_back(frame, frame.last)
        self.refuse(frame, pass_id)

    def refuse(self, frame: Frame, pass_id: PassId) -> None:
        """Report a vetoed pass that was not run."""
        self._tell(pass_id, frame.last, frame.last, vetoed=True)

    def end_pass(self, frame: Frame, pass_id: PassId, *, seconds: float) -> bool:
        """Report a pass without announced rewrites: they are read off its effect.

        Returns:
            Whether the graph had changed since the last record. If not, nothing is reported.
        """
        self.end_run(frame)
        mark = state_of(frame.root, frame.swaps)
        if mark == frame.mark:
            return False
        before, after = frame.last, snapshot(frame.root, frame.swaps)
        # The caller already passes the new inputs; the old graph would get the wrong ones.
        fixed = not same_inputs(before, after)

        def ask(rule: str) -> tuple[RewriteId, bool]:
            rewrite = self.numbering.rewrite_id(pass_id, rule)
            return rewrite, self.numbering.allow_rewrite(rewrite) or fixed

        keep = self.observer.keep_rewrites
        rewrites, allowed = number_effect(before, after, ask, keep_graphs=keep)
        if allowed is not after:
            mark = _put_back(frame, allowed)
        self._advance(frame, mark, allowed)
        self._tell(pass_id, before, allowed, rewrites, seconds=seconds)
        return True

    def report_unchanged(self, frame: Frame, pass_id: PassId, seconds: float) -> None:
        """Report a pass that ran and changed nothing."""
        self._tell(pass_id, frame.last, frame.last, seconds=seconds)

    def hand_over(self, frame: Frame) -> None:
        """Announce that the graph goes to code generation now.

        Raises:
            KernelVetoed: The observer refuses the kernel.
        """
        self.sync(frame, "unannounced_before_lowering")
        self.observer.on_stage(StageRecord("lowered", frame.last, frame.inputs))
        frame.kernel = self.numbering.kernel_id("inductor", frame.stage)
        frame.kernel_started = time.perf_counter()
        if not self.numbering.allow_kernel(frame.kernel):
            raise KernelVetoed
        frame.lowering = Lowering(frame.stage, frame.root, frame.last, self.numbering)

    def begin_match(self, frame: Frame, match: Attempt) -> bool:
        """Number a match that is about to be applied, and ask whether it may.

        A refused match stays refused: the same rule would find the nodes again in a later stage,
        and a sibling of the same family would make the same rewrite in its place. Those get no
        number, because they do not exist in a compile where the first was made.
        """
        domain = "pre_grad" if frame.stage == "pre_grad" else "aten"
        if any(match.repeats(other) for other in self._refused[domain]):
            return False
        run = self._run(frame, match.rule)
        rewrite = self.numbering.rewrite_id(run.id, match.rule)
        if run.vetoed or not self.numbering.allow_rewrite(rewrite):
            run.rewrites.append(RewriteRecord(rewrite, match.nodes, vetoed=True))
            self._refused[domain].append(match)
            return False
        run.pending = rewrite
        return True

    def _run(self, frame: Frame, rule: str) -> PatternRun:
        """Return the open run of a rule; opens one if another rule's is open, or none."""
        if frame.run is not None and frame.run.id.name == rule:
            return frame.run
        self.sync(frame, f"unannounced_before_{rule}")
        pass_id = self.numbering.pass_id(frame.stage, rule)
        vetoed = not self.numbering.allow_pass(pass_id)
        frame.run = PatternRun(pass_id, vetoed, time.perf_counter())
        return frame.run

    def end_match(self, frame: Frame, nodes: tuple[str, ...]) -> None:
        """Record the match that was just applied."""
        run = frame.run
        if run is None or run.pending is None:
            return
        after = None
        if self.observer.keep_rewrites:
            after = partial(snapshot, snapshot(frame.root, frame.swaps))
        run.rewrites.append(RewriteRecord(run.pending, nodes, after=after))
        run.pending = None

    def end_run(self, frame: Frame) -> None:
        """Report the open pattern run, if any; matches whose handler declined leave no record."""
        run, frame.run = frame.run, None
        if run is None or not run.rewrites:
            return
        before, after = frame.last, frame.last
        mark = state_of(frame.root, frame.swaps)
        if mark != frame.mark:
            after = snapshot(frame.root, frame.swaps)
            self._advance(frame, mark, after)
        seconds = time.perf_counter() - run.started
        self._tell(run.id, before, after, run.rewrites, vetoed=run.vetoed, seconds=seconds)

    def _tell(
        self,
        pass_id: PassId,
        before: GraphModule,
        after: GraphModule,
        rewrites: Sequence[RewriteRecord] = (),
        *,
        vetoed: bool = False,
        seconds: float = 0.0,
    ) -> None:
        numerics: Numerics = "exact" if pass_id.name in EXACT_PASSES else "reassociates"
        self.observer.on_pass(
            PassRecord(pass_id, numerics, before, after, tuple(rewrites), vetoed, seconds)
        )

    def _advance(self, frame: Frame, mark: GraphState, after: GraphModule) -> None:
        frame.last, frame.mark = after, mark
        frame.changes += 1


def _put_back(frame: Frame, graph: GraphModule) -> GraphState:
    """Make the live graph another one; return its state."""
    adopt(frame.root, graph)
    frame.swaps.clear()
    return state_of(frame.root)
