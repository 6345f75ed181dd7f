"""Packages for single operators as in eager mode: found by their arguments, made once, kept."""
