"""The artifacts that `torch.compiler.save_cache_artifacts` and `load_cache_artifacts` carry."""

import importlib
from collections.abc import Callable
from typing import Any


def _cache() -> Any:
    return importlib.import_module("torch.compiler._cache")


def register(kind: str, populate: Callable[[str, bytes], None]) -> None:
    """Add a kind of artifact to those of torch, once per process.

    Args:
        populate: Puts the content of an artifact into its cache, under its key.
    """
    cache = _cache()
    if kind in cache.CacheArtifactFactory._artifact_types:
        return

    def populate_cache(self: Any) -> None:
        populate(self.key, self.content)

    members = {"populate_cache": populate_cache, "type": staticmethod(lambda: kind)}
    cache.CacheArtifactFactory.register(type("CtkCacheArtifact", (cache.CacheArtifact,), members))


def record(kind: str, key: str, content: bytes) -> None:
    """Keep an artifact of this process for the next `save_cache_artifacts`."""
    _cache().CacheArtifactManager.record_artifact(kind, key, content)
