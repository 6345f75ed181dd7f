"""The folder of the persistent cache: its location, its safety, small notes in it."""
