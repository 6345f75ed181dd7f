"""The operation `compile`: programs become the entry points of a package."""
