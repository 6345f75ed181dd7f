"""One failure on disk: the value, its signature, its folder."""

from ctk.toolkit.case.case import Autocast, Case, Modes

__all__ = ["Autocast", "Case", "Modes"]
