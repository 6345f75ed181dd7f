"""Compiled graphs as data, and the code that runs them without a compiler."""
