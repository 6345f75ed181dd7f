"""Entries of the cache among the artifacts of `torch.compiler.save_cache_artifacts`.

Each entry that a process stores or uses is recorded, and `torch.compiler.load_cache_artifacts` puts
it into the cache of another process. That one must know the kind of artifact first: importing
`compiler/backend.py` registers it, as `torch.compile(..., backend="ctk")` does.
"""

import logging
import tempfile
from pathlib import Path

from ctk.compiler.cache.entry import Key, read_entry
from ctk.compiler.cache.store import Store, open_store
from ctk.compiler.errors import ContainerError, StorageError
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.process import cache_artifacts

log = logging.getLogger("ctk.cache")

_KIND = "ctk"


def register() -> None:
    """Make torch carry entries of the cache."""
    cache_artifacts.register(_KIND, _populate)


def record(store: Store, key: Key) -> None:
    """Record an entry for the next `save_cache_artifacts`; a removed one is not."""
    data = store.read(key)
    if data is not None:
        register()
        cache_artifacts.record(_KIND, key.digest, data)


def _populate(digest: str, data: bytes) -> None:
    """Put an entry into the cache, unless it is off or the entry is damaged."""
    store = open_store()
    if store is None:
        return
    try:
        with tempfile.TemporaryDirectory() as folder:  # 0700
            path = Path(folder) / digest
            path.write_bytes(data)
            path.chmod(0o600)
            label, container = read_entry(path)
    except (ContainerError, StorageError, OSError, ValueError) as error:
        log.warning("an artifact is not put into the cache: %s", first_line(error))
        return
    store.put(Key(label.parts), container.members, label.about)
