"""Which pass, rewrite or kernel causes a failure, and the proof."""

from ctk.toolkit.bisect.culprit import Culprit, Search
from ctk.toolkit.bisect.find import find_culprit

__all__ = ["Culprit", "Search", "find_culprit"]
