"""Packages: models and operators compiled ahead of time, for Python and C programs.

A package is one sealed file (`artifacts/container.py`) with everything that a call needs: compiled
graphs as data, kernels as machine code, weights, and an *input guard* per entry point.

    ctk.aot_compile(model, (x,), path="model.ctk")      trace, compile, seal
    package = ctk.load("model.ctk")                     map, check the seal and the machine
    package(x)                                          guard, run

Dynamo guards a compiled function by recompiling it. A package cannot: its compiler is gone. So the
guard (`input_guard.py`) is explicit data: dtype, device, rank and sizes of each input, relations
between sizes, values that were fixed. A call that does not fit raises, and the message names the
argument as the program does. The same guard, printed as tables in C (`c_wrapper/`), protects C
programs, which link `c_api/ctk.c` and need neither Python nor, for graphs of kernels only, torch.

Why not pickles or shared libraries alone? A pickle runs code when it is opened, and a library
cannot hold weights that are shared, mapped and replaced (`Package.bind`).

`operators/` keeps small packages of single operators in the persistent cache.
"""
