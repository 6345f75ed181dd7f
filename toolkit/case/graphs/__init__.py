"""A graph as JSON, as Python and as lines, and what it may call."""
