"""A diagnosis as JSON and as text."""
