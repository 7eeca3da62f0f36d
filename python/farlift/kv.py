"""The one-sided key/value cache: values straight from a data node's memory into memory of this process, checked.

    from farlift import KvClient, KvConfiguration, NodeAddress

    config = KvConfiguration([NodeAddress("10.0.0.7", 6379)], tenant="t1", key_file="/etc/farlift/t1.keys")
    with KvClient(config) as client:
        buffer = bytearray(64 << 20)
        with client.register_memory(buffer) as memory:      # once, for many reads and puts
            client.put("block-1", memory.window(0, 4096))
            got = client.get("block-1", memory.window(4096, 4096))
            print(got.status, got.length)

Statuses are values, not exceptions: a cache may miss. ``ok`` means exactly the bytes that some writer committed for this
tenant and key; after anything else the destination's contents are undefined and must not be used. When a call has
returned, nothing touches its buffers any more.

Threads: every method may be called from any thread; the GIL is released while a call waits. A call ends within twice
``operation_limit_ms`` and ``control_timeout_ms``, whatever the nodes do. Ctrl-C is raised when the call has returned, and not
before: until then the fabric may write to its buffers.

Life: clients that are open when the interpreter ends are closed by an exit handler, and calls of daemon threads end then. A
forked child must not use what it inherits: operations end as BAD_ARG, the rest raises ClosingError. Dropping it there is safe.
"""
import atexit
import weakref
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union, overload

from . import _kv
from .errors import KvError
from .kv_types import (Key, KvConfiguration, KvControl, KvGet, KvGroup, KvGroupEntry, KvNode, KvPut, KvPutMode, KvReadMode,
                       KvResult, KvStatus, Progress, number)

__all__ = ["KvClient", "KvConfiguration", "KvControl", "KvStatus", "KvReadMode", "KvPutMode", "KvGet", "KvPut", "KvResult",
           "KvMemory", "KvWindow", "KvGroup", "KvGroupEntry", "KvNode"]

class KvMemory:
    """Registered memory. Made by ``KvClient.register_memory`` and ``register_address``.

    The buffer is neither copied nor freed; it is kept alive, and from being resized, until the registration has ended:
    after ``close()`` (or the last reference) and the last call that uses it. Use it as a context manager.
    """

    __slots__ = ("_core", "_client", "__weakref__")

    def __init__(self, core: "_kv.Memory", client: "KvClient"):
        self._core = core
        self._client = client

    @property
    def size(self) -> int:
        """Bytes registered."""
        return self._core.size

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._core.address

    @property
    def closed(self) -> bool:
        """True once ``close()`` was called."""
        return self._core.closed

    def window(self, offset: int = 0, length: Optional[int] = None) -> "KvWindow":
        """``length`` bytes (to the end when None) from byte ``offset``. ValueError: past the end."""
        start = number("offset", offset, 0, self.size)
        return KvWindow(self, start, self.size - start if length is None
                        else number("length", length, 0, self.size - start))

    def close(self) -> None:
        """Ends the registration, after the calls that use it now. Idempotent."""
        self._core.close()

    def __enter__(self) -> "KvMemory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<KvMemory {self.size} bytes, {'closed' if self.closed else 'open'}>"


class KvWindow(NamedTuple):
    """A byte range of registered memory, as destination or source. Made by ``KvMemory.window``."""

    memory: KvMemory
    offset: int
    length: int


_U64_MAX = (1 << 64) - 1
_ADDRESS_MAX = (1 << 63) - 1

_live: "weakref.WeakSet[KvClient]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_live):
        client.close()


class KvClient:
    """A client of one tenant. Creating it opens the fabric and needs neither Valkey nor a node to be up.

    Destinations and sources are any C-contiguous buffers (bytearray, mmap, NumPy arrays, CPU tensors of PyTorch,
    memoryviews) or windows of registered memory. Memory that is not registered is registered for the duration of its call,
    which costs about as much as copying it: register what is used again.

    Raises: TypeError and ValueError for wrong arguments, ConfigurationError for options that this machine cannot meet,
    ClosingError for registering once closed. Operations of a closed client end as TIMEOUT, those in a forked child as
    BAD_ARG.
    """

    def __init__(self, config: KvConfiguration):
        if not isinstance(config, KvConfiguration):
            raise TypeError("config must be a KvConfiguration")
        config.__post_init__()  # it may have been changed since
        self.config = config
        self._core = _kv.Client(config._options())
        _live.add(self)

    # --- memory ---

    def register_memory(self, memory: Any) -> KvMemory:
        """Registers a writable, C-contiguous buffer for reads into it and puts from it.

        TypeError: it is not such a buffer. RdmaError: empty, overlaps registered memory, or the provider refuses. Peers can read it while it is registered
        and a put was made from it; no peer can ever write to it.
        """
        return KvMemory(self._core.register(_buffer(memory)), self)

    def register_address(self, address: int, size: int, owner: Any = None) -> KvMemory:
        """Registers ``size`` bytes at ``address``, for memory that offers no buffer. ``owner`` is kept alive until the
        registration has ended; without one the caller keeps the memory mapped that long. An owner that refers to the
        registration is a cycle which the garbage collector does not see: ``close()`` breaks it.

        TypeError, ValueError: not such numbers. RdmaError: as of register_memory."""
        start = number("address", address, 1, _ADDRESS_MAX)
        return KvMemory(self._core.register_address(start, number("size", size, 1, _ADDRESS_MAX - start + 1), owner), self)

    # --- values ---

    def get(self, key: Key, dest: Any, mode: KvReadMode = KvReadMode.FRAMED, min_revision: int = 0) -> KvResult:
        """Reads the value into ``dest``; see KvGet."""
        return self.mget([KvGet(key, dest, mode, min_revision)])[0]

    def put(self, key: Key, source: Any, mode: KvPutMode = KvPutMode.IF_ABSENT, expected_version: int = 0,
            push: bool = False) -> KvResult:
        """Stores the bytes of ``source``; see KvPut."""
        return self.mput([KvPut(key, source, mode, expected_version, push)])[0]

    def mget(self, requests: Iterable[Union[KvGet, Tuple[Any, ...]]], progress: Optional[Progress] = None) -> List[KvResult]:
        """One result for each request, in their order; one that fails does not touch the others.

        progress(done, total): requests that have ended, and all; called from this thread a few times a second, and once at
        the end. It must not call a client (RuntimeError). What it raises is raised when the batch is over, and the results
        are lost; it is not called again.

        TypeError, ValueError: a request that is not one; then nothing was begun.
        """
        lines = []
        for item in requests:
            key, dest, mode, least = KvGet(*item)
            lines.append((_key(key), *_target(dest), int(KvReadMode(mode)), number("min_revision", least, 0, (1 << 32) - 1)))
        return _results(self._core.mget(lines, progress))

    def mput(self, requests: Iterable[Union[KvPut, Tuple[Any, ...]]], progress: Optional[Progress] = None) -> List[KvResult]:
        """As mget, for KvPut."""
        lines = []
        for item in requests:
            key, source, mode, expected, push = KvPut(*item)
            lines.append((_key(key), *_target(source), int(KvPutMode(mode)),
                          number("expected_version", expected, 0, _U64_MAX), bool(push)))
        return _results(self._core.mput(lines, progress))

    def read(self, key: Key, mode: KvReadMode = KvReadMode.FRAMED) -> Optional[bytearray]:
        """The whole value in memory of its own, or None on a MISS. KvError: anything else, or it kept changing."""
        result = self.stat(key)
        for _ in range(4):
            if result.status is KvStatus.MISS:
                return None
            value = bytearray(result.raise_for_status().length)
            got = self.get(key, value, mode)
            if got.ok:
                return value[:got.length] if got.length != len(value) else value
            result = self.stat(key) if got.status is KvStatus.TOO_SMALL else got
        result.raise_for_status()
        raise KvError("the value changed with every attempt", KvStatus.CONFLICT)

    @overload
    def exists(self, keys: Union[str, bytes], progress: Optional[Progress] = None) -> bool: ...  # type: ignore[overload-overlap]
    @overload
    def exists(self, keys: Iterable[Key], progress: Optional[Progress] = None) -> List[bool]: ...

    def exists(self, keys: Union[Key, Iterable[Key]], progress: Optional[Progress] = None) -> Union[bool, List[bool]]:
        """Whether a read would be allowed now: a bool for one key, a list for several. False also when nobody can tell. No
        payload moves. progress: as of mget."""
        if isinstance(keys, (str, bytes)):
            return bool(self._core.exists([_key(keys)], progress)[0])
        return self._core.exists([_key(key) for key in keys], progress)

    def stat(self, key: Key) -> KvResult:
        """Length in bytes and version, when OK. No payload moves."""
        return _result(self._core.stat(_key(key)))

    def delete(self, key: Key, version: Optional[int] = None) -> KvResult:
        """Deletes the value, whatever its version or only this one. MISS: there was none. A reader that has resolved the
        key before may read the old, right bytes until its lease ends."""
        return _result(self._core.remove(_key(key), None if version is None else number("version", version, 0, _U64_MAX)))

    def write_group(self, group: str, keys: Iterable[Key], version: int = 1) -> KvGroup:
        """Signs the descriptors of ``keys``, in order, under one name, so that one request resolves the chain."""
        return _group(self._core.write_group(group, [_key(key) for key in keys], number("version", version, 0, _U64_MAX)))

    def read_group(self, group: str) -> KvGroup:
        """Resolves a group; reads of its keys then need no request to Valkey within ``lease_ms``."""
        return _group(self._core.read_group(group))

    # --- for operators ---

    def nodes(self) -> List[KvNode]:
        """Data nodes with a live record. ConnectionError: Valkey does not answer. ClosingError: closed."""
        return [KvNode(*node) for node in self._core.nodes()]

    def node_statistics(self, node: int) -> Tuple[KvStatus, Dict[str, int]]:
        """The counters of one node; empty unless OK."""
        status, counters = self._core.node_statistics(number("node", node, 0, _U64_MAX))
        return KvStatus(status), counters

    def rotate(self, node: int, arena: Optional[int] = None) -> KvStatus:
        """Has the node take back the memory of one arena, or of all of this tenant's; returns when it has begun."""
        which = None if arena is None else number("arena", arena, 0, (1 << 32) - 1)
        return KvStatus(self._core.rotate(number("node", node, 0, _U64_MAX), which))

    def drain(self, node: int) -> KvStatus:
        """The node takes no more values, moves hot ones to others, and leaves."""
        return KvStatus(self._core.drain(number("node", node, 0, _U64_MAX)))

    def reload_keys(self) -> None:
        """Reads the key file again: new secrets are added, those that are gone are dropped.

        ConfigurationError: the file is not one; the old keys stay. ClosingError: closed."""
        self._core.reload_keys()

    # --- life ---

    @property
    def statistics(self) -> Dict[str, int]:
        """Counters of this client by name; empty once closed."""
        return self._core.statistics()

    @property
    def closed(self) -> bool:
        """True once ``close()`` was called."""
        return self._core.closed

    def close(self) -> None:
        """Closes the endpoints, so that nothing touches anybody's buffers, then ends waiting calls as TIMEOUT. Idempotent,
        and allowed from any thread."""
        self._core.close()

    def __enter__(self) -> "KvClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_STATUSES = tuple(KvStatus(i) for i in range(len(KvStatus)))
assert [status.name for status in _STATUSES] == _kv.statuses(), "farlift._kv is of another version"


def _result(told: Tuple[int, int, int, str]) -> KvResult:
    return KvResult(_STATUSES[told[0]], told[1], told[2], told[3])


def _results(told: Iterable[Tuple[int, int, int, str]]) -> List[KvResult]:
    return [KvResult(_STATUSES[status], length, version, text) for status, length, version, text in told]


def _group(told: Tuple[int, int, List[Tuple[bytes, int, int]]]) -> KvGroup:
    entries = [KvGroupEntry(key, _STATUSES[status], length) for key, status, length in told[2]]
    return KvGroup(_STATUSES[told[0]], told[1], entries)


def _key(key: Key) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise TypeError("a key must be a string or bytes")


def _buffer(memory: Any) -> Any:
    """The memory itself; of a CPU tensor of PyTorch, which has no buffer protocol, its bytes as an array."""
    if type(memory).__module__.partition(".")[0] != "torch" or not hasattr(memory, "data_ptr"):
        return memory
    if memory.device.type != "cpu" or not memory.is_contiguous():
        raise TypeError("a tensor must be contiguous and on the CPU")
    import torch  # type: ignore[import-not-found, unused-ignore]
    return memory.detach().reshape(-1).view(torch.uint8).numpy()


def _target(memory: Any) -> Tuple[Any, int, Optional[int]]:
    if isinstance(memory, KvWindow):
        return memory.memory._core, memory.offset, memory.length
    if isinstance(memory, KvMemory):
        return memory._core, 0, None
    return _buffer(memory), 0, None
