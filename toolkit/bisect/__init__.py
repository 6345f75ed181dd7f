"""Bisection: which pass, rewrite and kernel cause a failure, with a counterfactual that proves it."""

from toolkit.bisect.culprit import Culprit, Search
from toolkit.bisect.find import find_culprit

__all__ = ["Culprit", "Search", "find_culprit"]
