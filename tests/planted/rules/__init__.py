"""Rewrite rules that are wrong in one corner each, for `ctk verify-rules` to refute."""
