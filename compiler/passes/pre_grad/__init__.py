"""Passes on the captured graph: torch-level calls, not functional, before autograd."""
