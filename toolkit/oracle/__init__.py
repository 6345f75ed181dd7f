"""Oracles: judge whether a case still fails, and in the same way."""
