"""The LMCache adapter against real data nodes; LMCache itself is our double of its interface (double/), or the real package
where FARLIFT_LMCACHE=real says so (./test --full)."""
import ctypes
import mmap
import os
import select
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REAL = os.environ.get("FARLIFT_LMCACHE", "") == "real"
collect_ignore = [] if REAL else ["test_server.py"]
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, os.environ.get("FARLIFT_PYTHONPATH", ""))
if not REAL:
    sys.path.insert(0, str(HERE / "double"))

import pytest  # noqa: E402
from harness.node import DataNode  # noqa: E402
from harness.server import Server  # noqa: E402

from farlift.lmcache.adapter import OkvL2Adapter  # noqa: E402
from lmcache.v1.distributed.api import ObjectKey  # noqa: E402
from lmcache.v1.distributed.internal_api import L1MemoryDesc  # noqa: E402
from lmcache.v1.platform import consume_fd  # noqa: E402


class Chunk:
    """An object in L1 of the double. Its physical size is none of our business."""

    def __init__(self, address: int, size: int):
        self.data_ptr, self._size = address, size

    def get_size(self) -> int:
        return self._size

    def get_physical_size(self) -> int:
        raise AssertionError("transfers go by get_size()")


class Arena:
    """L1: one range of memory, objects one after the other."""

    def __init__(self, size: int):
        self._memory = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.size, self._next = size, 0

    @property
    def desc(self):
        return L1MemoryDesc(self.address, self.size, 4096, self.size)

    def objects(self, count: int, size: int) -> list:
        out = [Chunk(self.address + self._next + i * size, size) for i in range(count)]
        self._next += -(-count * size // 4096) * 4096
        assert self._next <= self.size
        return out

    def close(self) -> None:
        pass


class RealArena:
    """L1 of LMCache itself."""

    def __init__(self, size: int):
        from lmcache.v1.distributed.config import L1MemoryManagerConfig
        from lmcache.v1.distributed.memory_manager.l1_memory_manager import L1MemoryManager
        self._manager = L1MemoryManager(L1MemoryManagerConfig(size_in_bytes=size, use_lazy=False, shm_name=""))
        self.desc = self._manager.get_l1_memory_desc()
        self.address, self.size = self.desc.ptr, self.desc.size
        self._held = []

    def objects(self, count: int, size: int) -> list:
        import torch
        from lmcache.v1.distributed.api import MemoryLayoutDesc
        error, objects = self._manager.allocate(MemoryLayoutDesc([torch.Size([size])], [torch.uint8]), count)
        assert len(objects) == count, error
        assert all(one.get_size() == size for one in objects)
        self._held += objects
        return objects

    def close(self) -> None:
        self._manager.free(self._held)
        self._manager.close()


def bytes_of(obj) -> bytearray:
    """A view of an object's bytes."""
    return (ctypes.c_ubyte * obj.get_size()).from_address(obj.data_ptr)


def fill(obj, value: bytes) -> None:
    ctypes.memmove(obj.data_ptr, bytes(value), len(value))


def make_key(number: int, model: str = "org/model", salt: str = "", rank: int = 0x01000100) -> ObjectKey:
    return ObjectKey(number.to_bytes(32, "big"), model, rank, 0, salt)


class Controller:
    """What LMCache's controllers do: submit, poll the event descriptor, query."""

    def __init__(self, adapter: OkvL2Adapter):
        self.adapter = adapter
        self.stores = {}

    def _wait(self, fd: int, query, timeout: float):
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        deadline = time.monotonic() + timeout
        while True:
            result = query()
            if result is not None:
                return result
            left = deadline - time.monotonic()
            assert left > 0, "the task never ended"
            assert poller.poll(left * 1000), "nobody signalled the event descriptor"
            try:
                consume_fd(fd)
            except BlockingIOError:
                pass

    def wait_store(self, task: int, timeout: float = 60):
        def query():
            self.stores.update(self.adapter.pop_completed_store_tasks())
            return self.stores.pop(task, None)
        return self._wait(self.adapter.get_store_event_fd(), query, timeout)

    def wait_lookup(self, task: int, timeout: float = 60):
        return self._wait(self.adapter.get_lookup_and_lock_event_fd(),
                          lambda: self.adapter.query_lookup_and_lock_result(task), timeout)

    def wait_load(self, task: int, timeout: float = 60):
        return self._wait(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task), timeout)

    def store(self, keys, objects):
        return self.wait_store(self.adapter.submit_store_task(keys, objects))

    def lookup(self, keys) -> list:
        bits = self.wait_lookup(self.adapter.submit_lookup_and_lock_task(keys, {}))
        return [bits.test(i) for i in range(len(keys))]

    def load(self, keys, objects) -> list:
        bits = self.wait_load(self.adapter.submit_load_task(keys, objects))
        return [bits.test(i) for i in range(len(keys))]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """(server, node, key file) shared by the tests that break neither; tenants t1 and t2."""
    keys = tmp_path_factory.mktemp("farlift-lm") / "t.keys"
    keys.write_text("1 " + "5a" * 32 + "\n")
    with Server(module=None) as server, DataNode(server.port, "--tenant", f"t1,keys={keys},quota=256m", "--tenant",
                                                 f"t2,keys={keys},quota=64m", "--grace-ms", 1000) as node:
        yield server, node, keys


@pytest.fixture
def params(cache):
    server, _, keys = cache
    return {"valkey": f"127.0.0.1:{server.port}", "tenant": "t1", "key_file": str(keys)}


@pytest.fixture
def arena():
    """64 MiB of L1."""
    one = (RealArena if REAL else Arena)(64 << 20)
    yield one
    one.close()


@pytest.fixture
def make_adapter(params, arena):
    """make_adapter(**options): closed after the test, before L1 goes."""
    made = []

    def make(**options) -> OkvL2Adapter:
        on = options.pop("on", arena)
        adapter = OkvL2Adapter(_configured({**params, **options}), l1_memory_desc=on.desc)
        made.append(adapter)
        return adapter

    yield make
    for adapter in made:
        adapter.close()


def _configured(params):
    from farlift.lmcache.adapter import OkvL2AdapterConfig
    return OkvL2AdapterConfig.from_dict(params)


@pytest.fixture
def adapter(make_adapter):
    return make_adapter()
