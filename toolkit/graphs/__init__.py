"""A graph as JSON, as Python and as lines for people, and the allow-list of what it may call."""
