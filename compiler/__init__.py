"""The compile pipeline: from a captured graph to a callable. Its face is `ctk.compile_fx`."""
