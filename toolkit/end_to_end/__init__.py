"""Compare the user's eager call with the compiled call; find the layer that differs.

The problem. A program is more than its graphs. Dynamo captures bytecode, writes guards, resumes
after a graph break and replays side effects; AOT dispatch functionalizes, and restores aliases and
mutations afterwards. All graphs of a program may compile correctly while the program returns a
wrong value, keeps a stale closure, or raises where eager does not. An answer "no failure" that
rests on graphs alone is therefore worthless.

The idea: *play and ladder*. A **play** runs the user's own call sequence (`warmups`, `between`,
`inputs()`, then the same call again) on a private build of the program, and records the results,
exceptions, aliases, gradients and Python state of each call. Two plays, one in eager and one with
the target, are compared call by call. If they agree, the program passes. If they differ, the
program is played again with less of the compiler, on the **ladder**:

    eager                        Dynamo alone                        -> layer `dynamo`
    aot_eager                    Dynamo and AOT dispatch             -> layer `dispatch`
    aot_eager_decomp_partition   and decompositions, the partition   -> layer `dispatch`
    the target                   and its own passes and kernels      -> layer `runtime`

A target of exported programs (`aot_inductor`) has a ladder of one rung: `export`, torch.export
alone, whose layer is `export`.

The lowest rung that differs in the same way is the layer, if it and the rung below it give the
same answers when they are played again. Each rung is a backend of torch that generates no code, so
a ladder costs about as much as two more compiles.

A worked example. `model()` appends to a list, and the compiled program has one entry too few:

    step                  compared                                          answer
    eager, then ctk       call 2: `list.0` is missing                       reproduces, kind `state`
    the graphs, one each  every result equals eager's                       no graph shows it
    backend="eager"       call 2: `list.0` is missing                       as the target: `dynamo`
    dynamo_culprit        guards off, resume functions off, line by line    `dynamo (side_effects)`

The operations ask about the graphs first, because a failing graph has a better answer: the guilty
pass, rewrite or kernel. `layers.ask` is the last question of a program whose graphs all pass, and
the only one of a program without a graph.

Details that are easy to get wrong:
* Each play needs a fresh program (`build.Builds`), because the previous one changed its state.
* Eager is played twice. A difference between two eager plays makes the answer `flaky` (`question`).
* "In the same way" compares the call, not the exception type: TorchScript's exceptions are unnamed
  (`layers.are_alike`).
* A compiled call may kill, hang or exhaust its process. `isolation.ask_in_isolation` plays each
  side of a program file in its own process; a callable lives in the user's process only.

Why not otherwise. Comparing only the outputs of the last call misses state and later calls, where
guards fail. Bisecting inside Dynamo first would answer "dynamo" for failures that a graph explains
better. Running the ladder from the bottom would need three plays for each healthy program; from
the top, a healthy program needs two.
"""
