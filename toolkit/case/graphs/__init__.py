"""A graph as JSON, as Python and as lines, and the calls that it may make."""
