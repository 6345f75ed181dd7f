"""Patterns that were traced before: written by `ctk gen-patterns`, loaded instead of tracing."""
