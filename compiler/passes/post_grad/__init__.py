"""Passes on the forward graph and on the backward graph, after partitioning."""
