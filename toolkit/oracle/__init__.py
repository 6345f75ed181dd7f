"""Oracles: judge whether a case still fails, and in the same way.

Bisection and reduction know nothing of compilers. They hold a case, change it or leave something
out of its compile, and ask one question: does it still fail, and in the same way? An answer costs a
compile: 0.1 to 60 seconds. The compile may end its process, never end, or give another answer in
the next run, and a reduction needs hundreds of answers. So between the question and the compile
stand a journal, time limits, parallel lanes, repeated runs and child processes.

**The idea: one stack.** There is one `Question(case, expected, veto, deadline_seconds, run)` and
one protocol, `Oracle.ask(question, *, known_only=False)`. Each concern is a layer: a class with an
inner oracle and the method `ask`, which changes the question on its way down, or the answer on its
way up. With `known_only` a question is looked up and never compiled; a layer passes it on like any
other, so no layer is written twice.

    Answers            toolkit/reduce/answers.py    one search asks each case once, and counts
      Deadlines        deadlines.py                 a short limit for each candidate
        Speculative    speculation.py               lanes work on the likely next questions
          SameFailure  questions/same_failure.py    is it the failure of the given case?
            Journaled  answers/journaled.py         the answer is on disk at once
              Executor executors/                   this process, a child, a pool, a cluster

A command or a function of the user takes the place of the last three: `Journaled` over
`CommandOracle` or `FunctionOracle`. Where answers differ from run to run, a `RepeatedRuns`
(repeated_runs.py) between two journals replaces the speculation. `stack_for` in
toolkit/operations/session/oracle_stack.py builds all of them; bisection asks `Journaled` directly.

**A question on its way.** A reduction with `--timeout 60` proposes a candidate of 50 nodes:

1. `Answers` has no answer to its fingerprint, looks it up with `known_only`, and then asks.
2. `Deadlines` has seen answers of 0.5 s for 800 nodes: `deadline_seconds` becomes 2.
3. `Speculative` finds that one of its lanes (threads) has already asked about this candidate, while
   the search awaited the last answer. A lane asks the layers below, and waits for its child.
4. `SameFailure` sets `expected` to the signature of the given case. If a cause is to be held, it
   asks a second question, with that pass in the `veto`: a candidate that fails without it slipped
   to another failure.
5. `Journaled` finds neither the key nor an answer that was cut off at 2 s or later, and asks.
6. `ChildProcess` saves the case, and a forked child runs `judge`: eager, compiled, compare.

The child is killed after 2 s, plus the time in which it had no core: the verdict is `timeout`.
`Journaled` notes it under its time, so that it never answers a question with a longer deadline.
`Deadlines` doubts it and asks once more with 8 s. The child passes after 3 s; the journal has both
answers, limits are longer from now on, and `Answers` counts one question.

**Invariants.** An answer depends on its question alone, so parallel and serial searches agree. A
layer learns only from answers that its caller used, in their order, so a resumed search repeats the
killed one from its journal. `NotKnown` passes through every layer before anything is learned.

**Alternatives that lost.** Two methods, `ask` and `recall`: each layer has every rule twice, and
the two drift apart. `None` for an unknown answer: each layer has to test for it after each inner
question. One class with options for all concerns: its states multiply, and none can be tested
alone. Futures: the order of the questions, which decides the result, would depend on the machine.
"""
