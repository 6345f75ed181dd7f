"""Block and boundary searches over abstract candidates, in few questions.

Problem: a question costs a compile, seconds or minutes, and five parts of the toolkit look for the
smallest set or number for which a failure stays: the reducers of graphs, of programs and of drawn
inputs, the bisection of a case and that of a command.

Idea: a search is a generator. It yields a candidate and is sent True, False, or None if the
candidate does not exist (`questions.py`). It knows no graph, oracle or cache, and depends on
nothing but the answers; `run_search` plays it against a predicate. Three families:

    blocks.py       sets      largest_subset    which of these can go together?
                              smallest_subset   which of these are needed?
                              single_cause      which of these is needed alone?
                              every_cause       which of these are enough, each alone?
    boundaries.py   numbers   largest_true, smallest_true, find_integer: monotone predicates
    descents.py     orders    descend, least_number, least_landmark: any predicate

Example: of the 8 atoms a...h the failure needs c. `largest_subset("abcdefgh")` asks to remove

    abcdefgh no   abcd no   ab yes   abc no   abd yes   abdefgh yes

After ab is taken, cd whole is not asked again: that was the question abcd.

Why no closures over mutable state, and no callbacks (as `torch.fx`'s minifier has): a generator can
be played again with assumed answers, so that `reduce/lookahead.py` foresees the next questions for
idle workers without any help of the search. And a search that never sees its candidates is tested
on all small predicates by brute force (tests/unit/search).
"""
