"""The user's own eager call against the user's own compiled call; which layer differs."""
