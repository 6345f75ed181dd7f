"""What a compile made, as files: packages, and the entries of the persistent cache."""
