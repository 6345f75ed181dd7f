"""Bisection: which pass, rewrite or kernel causes a failure, and the counterfactual as proof."""

from toolkit.bisect.culprit import Culprit, Search
from toolkit.bisect.find import find_culprit

__all__ = ["Culprit", "Search", "find_culprit"]
