"""Run a graph in eager and compiled, and print a verdict."""
