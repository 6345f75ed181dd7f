"""Patterns: a matcher over ATen graphs, and one file of rules per family."""
