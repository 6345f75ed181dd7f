"""The memory of oracles: the journal on disk, and the names of its questions."""
