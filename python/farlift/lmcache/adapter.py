"""The second tier of LMCache's multi-process server in memory of data nodes, read one-sidedly.

    lmcache server --l1-size-gb 40 --eviction-policy LRU --no-l1-use-lazy --l2-adapter '{"type": "plugin",
        "module_path": "farlift.lmcache.adapter", "class_name": "OkvL2Adapter",
        "adapter_params": {"valkey": "10.0.0.2:6379", "tenant": "t1", "key_file": "/etc/farlift/t1.keys"}}'

Invariants
  L1 is registered once; values land in its objects and are put from them. There is no other way, and no copy.
  A load's bit is set only if the object holds exactly the bytes that somebody stored under this key, all of them.
  Every task ends: after queue_limit_ms, twice operation_limit_ms and control_timeout_ms at the latest.
  When close() has returned, nothing touches L1.
Threads: any may call anything; LMCache's store and prefetch controllers do at once. The work is done on threads of ours.
Errors: ValueError and those of KvClient at construction. Afterwards nothing is raised: a failure is a clear bit, a failed
store, or a line in report_status().
"""
import itertools
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..kv import KvResult, KvStatus
from . import interface
from .config import OkvL2AdapterConfig
from .interface import Bitmap, L2AdapterInterface, logger, store_result
from .inventory import Inventory, Locks
from .lanes import Lane
from .tenants import Tenants

__all__ = ["OkvL2Adapter", "OkvL2AdapterConfig"]

_GONE = (KvStatus.MISS, KvStatus.STALE, KvStatus.ACCESS)
_STORED = (KvStatus.OK, KvStatus.EXISTS)
_LOG_EVERY_S = 10.0
_Task = Tuple[List[Any], List[Any]]


def _arena(desc: Any, not_lazy: bool) -> Tuple[int, int]:
    """Address and size of L1, when it may be registered for good. ValueError otherwise."""
    if desc is None or not getattr(desc, "ptr", 0) or getattr(desc, "size", 0) <= 0:
        raise ValueError("OkvL2Adapter lands values in LMCache's L1 memory, but LMCache described none: it needs a DRAM L1")
    stable = getattr(desc, "stable_registration_size", None)
    if stable is None and not not_lazy:
        raise ValueError(
            "LMCache does not say whether its L1 is allocated at once (it does not for L1 in named shared memory), and memory "
            "that grows cannot be registered once. If the server runs with --no-l1-use-lazy, confirm it with "
            "\"l1_not_lazy\": true in adapter_params; or leave --shm-name out")
    if stable is not None and stable < desc.size:
        raise ValueError(f"L1 is lazy: {stable} of {desc.size} bytes exist. Start the server with --no-l1-use-lazy")
    return desc.ptr, desc.size


class OkvL2Adapter(L2AdapterInterface):
    """config: OkvL2AdapterConfig, or its dictionary. l1_memory_desc: of the arena all objects lie in."""

    config_class_name = "OkvL2AdapterConfig"

    def __init__(self, config: Any, *, l1_memory_desc: Any = None, **_: Any):
        if not isinstance(config, OkvL2AdapterConfig):
            config = OkvL2AdapterConfig.from_dict(config)
        address, size = _arena(l1_memory_desc, config.l1_not_lazy)
        super().__init__(max_capacity_bytes=int(config.max_capacity_gb * (1 << 30)))
        self._config = config
        self._ids = itertools.count(1)
        self._inventory, self._locks = Inventory(config.tracked_keys_max), Locks()
        self._counting = threading.Lock()
        self._ended: Dict[str, Dict[str, int]] = {"stores": {}, "loads": {}}
        self._totals = {"lookup_keys": 0, "lookup_hits": 0, "loads_of_wrong_length": 0, "listener_errors": 0}
        self._trouble: Optional[Tuple[float, str]] = None
        self._logged: Dict[str, float] = {}
        self._life = threading.Lock()
        self._closed = False
        self._tenants = Tenants(config, address, size)
        limit = config.queue_limit_ms / 1000
        lanes: List[Lane] = []
        try:
            for name, threads, run, failed in (
                    ("store", config.store_threads, self._store, lambda task: store_result(False, 0)),
                    ("lookup", config.lookup_threads, self._lookup, lambda task: Bitmap(len(task[0]))),
                    ("load", config.load_threads, self._load, lambda task: Bitmap(len(task[0])))):
                lanes.append(Lane(name, threads, limit, run, failed))
        except BaseException:
            self._tenants.close()
            self._tenants.release()
            for lane in lanes:
                lane.close_notifier()
            raise
        self._stores, self._lookups, self._loads = self._lanes = lanes
        for lane in lanes:
            lane.start()
        logger.info("farlift: tenant %s, %d bytes of L1 registered, provider %s", config.tenant, size, config.provider)

    # --- what LMCache polls ---

    def get_store_event_fd(self) -> int:
        return self._stores.fileno

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._lookups.fileno

    def get_load_event_fd(self) -> int:
        return self._loads.fileno

    # --- tasks ---

    def submit_store_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        return self._submit(self._stores, keys, objects)

    def pop_completed_store_tasks(self) -> Dict[int, Any]:
        return self._stores.take_all()

    def submit_lookup_and_lock_task(self, keys: Sequence[Any], *_layout: Any, **_more: Any) -> int:
        return self._submit(self._lookups, keys, ())

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._lookups.take(task_id)

    def submit_load_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        return self._submit(self._loads, keys, objects)

    def query_load_result(self, task_id: int) -> Any:
        return self._loads.take(task_id)

    def submit_unlock(self, keys: Sequence[Any]) -> None:
        self._locks.give_back(keys)

    # --- beside tasks ---

    def delete(self, keys: Sequence[Any]) -> None:
        """Blocks, for the time of one task at most; what it did not get to stays, and stays counted."""
        keys = list(keys)
        if not keys or self._closed:
            return
        try:
            results = self._tenants.delete(keys)
        except Exception:  # noqa: BLE001 - nothing may reach LMCache
            logger.exception("farlift: a delete failed unexpectedly")
            return
        left = [result for result in results if result.status not in (KvStatus.OK, KvStatus.MISS)]
        if left:
            self._note("delete", left)
        self._forget([key for key, result in zip(keys, results) if result.status in (KvStatus.OK, KvStatus.MISS)])

    def list_l2_keys(self, model_name: Optional[str] = None, page_size: int = 500, cursor: Optional[str] = None) -> Any:
        """What this server stored and has not seen go; what other servers stored is not listed."""
        if interface.KeyListPage is None:
            raise NotImplementedError("this line of LMCache cannot list keys")
        entries, token = self._inventory.page(model_name, page_size, cursor)
        return interface.KeyListPage(
            entries=tuple(interface.KeyEntry(key=key.to_encoded_object_key(), size_bytes=size) for key, size in entries),
            next_page_token=token)

    def report_status(self) -> Dict[str, Any]:
        """is_healthy: tasks are taken and answered. That the cache cannot be reached makes misses, not ill health; it is
        in last_trouble. Asks nobody."""
        with self._counting:
            counted = {name: dict(ended) for name, ended in self._ended.items()}
            totals, trouble = dict(self._totals), self._trouble
        return {
            "is_healthy": not self._closed and all(lane.alive for lane in self._lanes),
            "type": "farlift",
            "tenant": self._config.tenant,
            "provider": self._config.provider,
            "closed": self._closed,
            **{lane.name: lane.status() for lane in self._lanes},
            **counted, **totals,
            "last_trouble": None if trouble is None else {"seconds_ago": round(time.monotonic() - trouble[0], 3),
                                                          "what": trouble[1]},
            "tracked_keys": len(self._inventory),
            "locked_keys": len(self._locks),
            "client": self._tenants.statistics(),
        }

    def close(self) -> None:
        """Takes no more tasks, closes the endpoints, reports what was under way as failed. Idempotent; a second caller
        waits for the first."""
        with self._life:
            if self._closed:
                return
            self._closed = True
            for lane in self._lanes:
                lane.stop_intake()
            self._tenants.close()
            for lane in self._lanes:
                lane.join()
            self._tenants.release()
            for lane in self._lanes:
                lane.close_notifier()

    # --- on the lanes' threads ---

    def _store(self, task: _Task) -> Any:
        keys, objects = task
        results = self._tenants.store(keys, objects)
        self._count("stores", results)
        stored = [(key, result.length) for key, result in zip(keys, results) if result.status is KvStatus.OK]
        if stored:
            forgotten = self._inventory.add(stored)
            self._tell(self._notify_keys_stored, [key for key, _ in stored], [size for _, size in stored])
            if forgotten:
                self._tell(self._notify_keys_deleted, [key for key, _ in forgotten], [size for _, size in forgotten])
        bad = [result for result in results if result.status not in _STORED]
        if bad:
            self._note("store", bad)
        return store_result(not bad, sum(size for _, size in stored))

    def _lookup(self, task: _Task) -> Any:
        keys, _ = task
        found = [i for i, there in enumerate(self._tenants.exists(keys)) if there]
        bitmap = Bitmap(len(keys))
        for i in found:
            bitmap.set(i)
        self._locks.take(keys[i] for i in found)
        with self._counting:
            self._totals["lookup_keys"] += len(keys)
            self._totals["lookup_hits"] += len(found)
        return bitmap

    def _load(self, task: _Task) -> Any:
        keys, objects = task
        results = self._tenants.load(keys, objects)
        self._count("loads", results)
        bitmap, loaded, gone, bad, misfits = Bitmap(len(keys)), [], [], [], 0
        for i, (key, obj, result) in enumerate(zip(keys, objects, results)):
            if result.ok and result.length == obj.get_size():
                bitmap.set(i)
                loaded.append(key)
            elif result.ok or result.status is KvStatus.TOO_SMALL:  # stored with another chunk size or layout
                misfits += 1
            elif result.status in _GONE:
                gone.append(key)
            else:
                bad.append(result)
        if misfits:
            with self._counting:
                self._totals["loads_of_wrong_length"] += misfits
        if loaded:
            self._tell(self._notify_keys_accessed, loaded)
        self._forget(gone)
        if bad:
            self._note("load", bad)
        return bitmap

    # --- helpers ---

    def _submit(self, lane: Lane, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        task_id = next(self._ids)
        keys, objects = list(keys), list(objects)
        if lane is not self._lookups and len(keys) != len(objects):
            logger.error("farlift: a %s task with %d keys and %d objects", lane.name, len(keys), len(objects))
            lane.submit_failed(task_id, (keys, objects))
        else:
            lane.submit(task_id, (keys, objects))
        return task_id

    def _forget(self, keys: Sequence[Any]) -> None:
        gone = self._inventory.remove(keys) if keys else []
        if gone:
            self._tell(self._notify_keys_deleted, [key for key, _ in gone], [size for _, size in gone])

    def _tell(self, notify: Any, *arguments: Any) -> None:
        """LMCache's listeners run inside: what they raise is theirs and must not fail the task."""
        try:
            notify(*arguments)
        except Exception:  # noqa: BLE001
            with self._counting:
                self._totals["listener_errors"] += 1
            logger.exception("farlift: a listener of LMCache raised")

    def _count(self, kind: str, results: Sequence[KvResult]) -> None:
        with self._counting:
            for result in results:
                name = result.status.name
                self._ended[kind][name] = self._ended[kind].get(name, 0) + 1

    def _note(self, kind: str, results: Sequence[KvResult]) -> None:
        """Remembers what went wrong, and logs it once in a while."""
        first = results[0]
        what = f"{len(results)} of a {kind} task's keys ended as {first.status.name}" + (f": {first.text}" if first.text else "")
        now = time.monotonic()
        with self._counting:
            self._trouble = (now, what)
            quiet = now - self._logged.get(kind, now - _LOG_EVERY_S) < _LOG_EVERY_S
            if not quiet:
                self._logged[kind] = now
        if not quiet:
            logger.warning("farlift: %s", what)
