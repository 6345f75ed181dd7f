"""The folder of the persistent cache: where it is, if it is safe, and small notes in it."""
