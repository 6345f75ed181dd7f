"""What a diagnosis looks like, as JSON and as text."""
