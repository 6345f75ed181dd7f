"""Verify rewrite rules and passes on drawn graphs, before against after."""
