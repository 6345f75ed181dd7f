"""What the persistent cache costs, and what it does under mutations and kills.

    python -m benchmarks.cache_stress [--mutations 1000] [--kills 100]

Times are medians. An entry is written, opened (all of it is checked) and missed; the memory that an
open entry's members lie in is the program's own. Then entries are damaged, renamed, swapped and
sealed anew under other keys, and processes that read and write are killed at random moments.
"""

import argparse
import logging
import statistics
import tempfile
import time
from pathlib import Path

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.store import Store
from tests.helpers.cache_stress import KEYS, key_of, kill_at_random, loaded_after_mutations

SIZES = (1_000, 100_000, 1_000_000, 10_000_000, 100_000_000)


def milliseconds(function, repeats):
    """Return the median milliseconds of a call."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def cost(store, nbytes):
    """Print what one entry of a size costs."""
    key, repeats = Key({"bytes": str(nbytes)}), 5 if nbytes > 10**7 else 30
    data = bytes(range(250)) * (nbytes // 250)
    put = milliseconds(lambda: store.put(key, {"a": data}), repeats)
    hit = milliseconds(lambda: store.get(key), repeats)
    miss = milliseconds(lambda: store.get(Key({"bytes": "other"})), repeats)
    print(f"{nbytes:12,}{put:10.2f}{hit:10.2f}{miss:10.2f}")


def killed(store, kills, seed):
    """Print what is left after some kills."""
    kill_at_random(store, kills, seed)
    files = sum(path.is_file() for path in store.root.rglob("*"))
    wrong = sum(entry.problem is not None for entry in store.verify())
    loads, held = len(list(store.root.glob("wrong-*"))), 0
    for number in range(KEYS):
        with store.lock(key_of(number), seconds=0) as is_held:
            held += not is_held
    store.put(Key({}), {})
    after = sum(path.is_file() for path in store.root.rglob("*"))
    print(f"{kills} kills: {loads} wrong loads, {wrong} wrong entries, {held} locks held")
    print(
        f"{files} files then; after the next write {after}: {len(store.entries())} entries, notes"
    )


def main():
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutations", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("ctk.cache").setLevel(logging.ERROR)  # a line for each entry that is dropped
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'bytes':>12}{'put ms':>10}{'hit ms':>10}{'miss ms':>10}")
        for nbytes in SIZES:
            cost(Store(Path(folder), 2 << 30), nbytes)
    with tempfile.TemporaryDirectory() as folder:
        bad = loaded_after_mutations(Store(Path(folder), 1 << 30), options.mutations, options.seed)
        print(f"{options.mutations:,} mutated entries: {len(bad)} loaded")
    with tempfile.TemporaryDirectory() as folder:
        killed(Store(Path(folder), 600_000), options.kills, options.seed)


if __name__ == "__main__":
    main()
