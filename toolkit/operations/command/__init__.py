"""A command that compiles, run again with other passes left out."""
