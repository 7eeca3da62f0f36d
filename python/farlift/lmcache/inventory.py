"""What this server has stored and nobody has been seen to remove: for usage, listing and deletion.

Bounded: the oldest entries are forgotten. It does not see what data nodes evict until a load misses.
Threads: any.
"""
import collections
import itertools
import threading
from typing import Any, Dict, Iterable, List, Optional, Tuple


class Inventory:
    def __init__(self, keys_max: int):
        self._keys_max = keys_max
        self._lock = threading.Lock()
        self._entries: "collections.OrderedDict[Any, Tuple[int, int]]" = collections.OrderedDict()  # key: (number, size)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, stored: Iterable[Tuple[Any, int]]) -> List[Tuple[Any, int]]:
        """Puts the keys in; returns those that had to be forgotten for it, and those that were there with another size."""
        gone = []
        with self._lock:
            for key, size in stored:
                before = self._entries.pop(key, None)
                if before is not None:
                    gone.append((key, before[1]))
                self._entries[key] = (next(self._numbers), size)
            while len(self._entries) > self._keys_max:
                key, (_, size) = self._entries.popitem(last=False)
                gone.append((key, size))
        return gone

    def remove(self, keys: Iterable[Any]) -> List[Tuple[Any, int]]:
        """Returns those that were in."""
        with self._lock:
            found = [(key, self._entries.pop(key, None)) for key in keys]
        return [(key, entry[1]) for key, entry in found if entry is not None]

    def page(self, model_name: Optional[str], size: int, cursor: Optional[str]) -> Tuple[List[Tuple[Any, int]], Optional[str]]:
        """Entries in the order they were put in, after the cursor; and the next cursor, None at the end."""
        if size <= 0:
            raise ValueError("page_size must be positive")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise ValueError("malformed cursor")
        after, out, last = int(cursor or 0), [], 0
        with self._lock:
            for key, (number, length) in self._entries.items():
                if number <= after or (model_name is not None and key.model_name != model_name):
                    continue
                if len(out) == size:
                    return out, str(last)
                out.append((key, length))
                last = number
        return out, None


class Locks:
    """How often each key is locked by lookups. Locks hold nothing here: a descriptor stays cached for its lease."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def take(self, keys: Iterable[Any]) -> None:
        with self._lock:
            for key in keys:
                self._counts[key] = self._counts.get(key, 0) + 1

    def give_back(self, keys: Iterable[Any]) -> None:
        with self._lock:
            for key in keys:
                count = self._counts.pop(key, 0) - 1
                if count > 0:
                    self._counts[key] = count
