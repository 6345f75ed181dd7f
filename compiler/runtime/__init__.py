"""What a compiled graph is as data, and what runs it: no compiler is needed for that."""
