"""Reports: what a diagnosis looks like as JSON and as text."""
