"""Dynamo: backends, exceptions, guards and stances."""
