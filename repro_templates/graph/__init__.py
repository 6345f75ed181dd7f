"""TODO wing."""
