"""Generators that make many kernels share this: lower, fuse, plan, compile, and call in order."""
