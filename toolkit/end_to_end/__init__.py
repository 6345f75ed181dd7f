"""Compare the user's eager call with the compiled call; find the layer that differs."""
