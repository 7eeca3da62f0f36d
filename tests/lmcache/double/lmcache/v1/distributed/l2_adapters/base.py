"""The interface of an adapter, and the accounting it inherits."""
import threading
from abc import ABC, abstractmethod
from types import SimpleNamespace


class L2AdapterInterface(ABC):
    def __init__(self, max_capacity_bytes: int = 0):
        self._max_capacity_bytes = max_capacity_bytes
        self._usage, self._lock, self._listeners = {}, threading.Lock(), []

    for _name in ("get_store_event_fd", "get_lookup_and_lock_event_fd", "get_load_event_fd", "submit_store_task",
                  "pop_completed_store_tasks", "submit_lookup_and_lock_task", "query_lookup_and_lock_result", "submit_unlock",
                  "submit_load_task", "query_load_result", "close"):
        locals()[_name] = abstractmethod(lambda self, *_: None)
    del _name

    def register_listener(self, listener) -> None:
        self._listeners.append(listener)

    def _change(self, keys, sizes, sign: int) -> None:
        assert len(keys) == len(sizes) and all(size >= 0 for size in sizes)
        with self._lock:
            for key, size in zip(keys, sizes):
                self._usage[key.cache_salt] = self._usage.get(key.cache_salt, 0) + sign * size
                assert self._usage[key.cache_salt] >= 0, "more was deleted than stored"

    def _notify_keys_stored(self, keys, sizes) -> None:
        self._change(keys, sizes, 1)
        for listener in self._listeners:
            listener.on_l2_keys_stored(keys, sizes)

    def _notify_keys_accessed(self, keys) -> None:
        for listener in self._listeners:
            listener.on_l2_keys_accessed(keys)

    def _notify_keys_deleted(self, keys, sizes) -> None:
        self._change(keys, sizes, -1)
        for listener in self._listeners:
            listener.on_l2_keys_deleted(keys)

    def get_usage(self):
        with self._lock:
            by_salt = {salt: size for salt, size in self._usage.items() if size}
        total = sum(by_salt.values())
        capacity = self._max_capacity_bytes
        return SimpleNamespace(total_bytes_used=total, total_capacity_bytes=capacity, bytes_by_cache_salt=by_salt,
                               usage_fraction=total / capacity if capacity else -1.0)
