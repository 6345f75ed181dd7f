"""Compiles watched as a program runs: hooks, dumps, first calls."""
