"""Oracles: does this case still fail, and in the same way?"""
