"""Modules with rules as users write them."""
