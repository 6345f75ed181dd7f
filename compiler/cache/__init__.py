"""The persistent cache of whole graphs: keys, entries, store."""
