"""Watch the compiles of a running program: hooks, dumps, first calls."""
