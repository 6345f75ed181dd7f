"""The reducer: search for the smallest case or program with the same failure.

Problem: a compiled model fails, and its graph has 3,000 nodes. A developer of the compiler needs
the three that matter, on inputs of one element, in a script that runs without the model. One
question (does this candidate still fail in the same way?) costs a compile, candidates may crash,
hang or fail at random, and a wrong answer sends the search to another bug.

Idea: steps propose, one driver searches, one order decides.

1. A step (`steps/`, one file each) looks at a case and returns proposals (`proposal.py`): a set of
   atoms that may go in any combination (`Subset`), a ladder of edits from mild to strong
   (`Monotone`), a number to make smaller (`Descent`), a few `Guesses`. A step asks no question and
   keeps no state. If it skips edits it has to report that (`GaveUp`), because the result is not
   minimal then.
2. An edit (`edits.py`, `*_edits.py`) is frozen data: it can be logged, joined with others, replayed
   on another case and listed in the certificate.
3. The driver (`driver.py`) turns a proposal into a search (`proposal_search.py`, `toolkit/search`)
   at three levels: coarse blocks, all blocks, single edits. Only the driver asks the oracle, by way
   of `Answers` (`answers.py`), so there is one cache, one budget and one table of statistics
   (`progress.py`), and one place that foresees questions (`lookahead.py`).
4. Cases have one total order (`size.py`): calls first, then inputs and elements, dtypes, arguments,
   values. A candidate that is not smaller is never asked. So the search ends, a second run has
   nothing to do, and the number of jobs does not change the result.
5. The last level tries every edit of every step alone. If all are refused the result is 1-minimal,
   and the refusals are its certificate (`certificate.py`): the proof that a reader can check.

Example: `relu(mul(x, w) + sin(x))` on `x: f32[64, 64]`, where only `relu` is compiled wrongly.

    halve             the second half: add, relu      reproduces   4 calls -> 2
    remove            relu alone, reads x             reproduces   1 call
    shrink_dimensions x: f32[1, 1]                    reproduces
    simplify_values   x = 0                           passes, so refused
    simplify_numbers  x = -1                          reproduces
    single level      without relu: no program left; x = 0: passes; ...   refused: 1-minimal

The result is `-1` and not `-0.73`: a failure of `relu` needs a negative number, and -1 is the first
of them in the order.

Why not closures over a mutable graph, as `torch.fx`'s minifier? There every strategy walks the
graph, compiles, compares and mutates on its own: no budget, no cache, no resume and no second
worker without touching each, and "minimal" means that the strategies ran out. Here a step is about
30 lines that cannot break these promises. Why not delta debugging on text? Most candidates would
not be programs. `program/` does reduce source text, for failures that no graph shows, with the
syntax tree as its atoms and the same searches.

Not here: judging candidates (`toolkit/oracle`), emitting the script (`toolkit/repro`), naming the
guilty pass (`toolkit/bisect`, whose culprit is only a hint: `suspected_nodes.py`).
"""
