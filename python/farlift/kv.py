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
``operation_limit_ms`` and ``control_timeout_ms``, whatever the nodes do. Ctrl-C is raised when the call has returned.
"""
import atexit
import weakref
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _kv
from .config import NodeAddress, RdmaProvider, ServerCredentials, TlsConfiguration, _PROVIDERS
from .errors import ClosingError, KvError, RdmaError

__all__ = ["KvClient", "KvConfiguration", "KvControl", "KvStatus", "KvReadMode", "KvPutMode", "KvGet", "KvPut", "KvResult",
           "KvMemory", "KvWindow", "KvGroup", "KvGroupEntry", "KvNode"]

Key = Union[str, bytes]
Progress = Callable[[int, int], Any]


class KvStatus(IntEnum):
    """How an operation ended. All but OK give no bytes."""

    OK = 0
    MISS = 1            # nothing there, or not of the revision asked for
    STALE = 2           # it was in the memory of a node that has restarted since
    REJECT_NOSIG = 3    # unsigned: not ours, or half of it was evicted
    REJECT_SIG = 4      # the signature is not of this tenant, this key and this secret
    REJECT_FORMAT = 5   # not a descriptor
    BAD_MAGIC = 6       # what landed is not what the descriptor promised (BAD_*)
    BAD_KEY = 7
    BAD_VERSION = 8
    BAD_LENGTH = 9
    BAD_CRC = 10
    ACCESS = 11         # the node's card refused: its memory is used for something else by now
    UNREACHABLE = 12    # no node, or no way to it
    TIMEOUT = 13        # the operation limit passed, or the client was closed
    TOO_SMALL = 14      # the destination is shorter than the value; the result's length says what would do
    TOO_LARGE = 15      # longer than a node can hold
    FULL = 16           # no node has room now
    EXISTS = 17         # put IF_ABSENT: there is a value
    CONFLICT = 18       # put IF_VERSION: there is another version
    BAD_ARG = 19        # the result's text says what
    CONTROL_DOWN = 20   # Valkey does not answer


class KvReadMode(IntEnum):
    """FRAMED also reads and compares the 32-byte header; PAYLOAD_ONLY checks against the signed descriptor alone."""

    FRAMED = 0
    PAYLOAD_ONLY = 1


class KvPutMode(IntEnum):
    """What a put does when there is a value: leave it (EXISTS), compare its version (CONFLICT), or replace it."""

    IF_ABSENT = 0
    IF_VERSION = 1
    REPLACE = 2


class KvControl(Enum):
    """What ``KvConfiguration.valkey`` names: the server, seeds of a cluster, or sentinels."""

    STANDALONE = "standalone"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


class KvResult(NamedTuple):
    """status; length of the value in bytes, when OK and when TOO_SMALL; version: revision in the upper 32 bits, of EXISTS
    and CONFLICT theirs; text: of BAD_ARG, one sentence."""

    status: KvStatus
    length: int = 0
    version: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        """The operation was done; of a read: the bytes are there, and right."""
        return self.status is KvStatus.OK

    def raise_for_status(self) -> "KvResult":
        """This result when OK; KvError otherwise."""
        if not self.ok:
            raise KvError(self.status.name + (f": {self.text}" if self.text else ""), self.status)
        return self


class KvGet(NamedTuple):
    """One read of a batch. key: 1 to 1024 bytes. dest: a writable, C-contiguous buffer or a KvWindow; its size is the
    longest value taken. min_revision: 0 to 2**32 - 1; an older value counts as a MISS."""

    key: Key
    dest: Any
    mode: KvReadMode = KvReadMode.FRAMED
    min_revision: int = 0


class KvPut(NamedTuple):
    """One write of a batch. source: a C-contiguous buffer or a KvWindow, not to be changed before the call returns.
    expected_version: of IF_VERSION; 0 means absent. push: this side writes instead of the node reading, for rails that can
    take back a grant (soft, verbs, efa_direct)."""

    key: Key
    source: Any
    mode: KvPutMode = KvPutMode.IF_ABSENT
    expected_version: int = 0
    push: bool = False


class KvGroupEntry(NamedTuple):
    """One key of a group: how its descriptor was judged, and its length in bytes when OK."""

    key: bytes
    status: KvStatus
    length: int


class KvGroup(NamedTuple):
    """A chain of keys under one name. version: of the group itself."""

    status: KvStatus
    version: int
    entries: List[KvGroupEntry]


class KvNode(NamedTuple):
    """A data node as the directory announces it: a hint, not a proof. free_bytes, up_seconds: as of its last heartbeat."""

    id: int
    incarnation: int
    host: str
    port: int
    draining: bool
    free_bytes: int
    up_seconds: int
    providers: List[str]


# name, least, greatest
_RANGES = (("spin_us", 0, 10_000), ("lease_ms", 0, 3_600_000), ("operation_limit_ms", 1, 600_000),
           ("control_timeout_ms", 1, 600_000), ("reader_lease_ms", 0, 60_000), ("cache_entries_max", 1, 1 << 28),
           ("in_flight_max", 1, 4096), ("hash_threads", 0, 256), ("database_id", 0, 1 << 20))


@dataclass
class KvConfiguration:
    """Where the directory is, who we are, and over which fabric values travel.

    valkey: the Valkey server, seeds of its cluster, or sentinels; see ``control``.
    tenant: 1 to 64 of A-Z a-z 0-9 _ . -
    key_file: the tenant's secrets, lines ``<key id> <64 hex digits>``. Instead of it ``development=True``: nothing is
        signed, nothing is authenticated.
    sentinel_primary: the primary's name, for KvControl.SENTINEL.
    credentials, database_id, use_tls, tls: of the connection to Valkey.
    node_use_tls, node_tls: TLS 1.3 on the control connections to data nodes. It does not encrypt values.
    provider: an ``RdmaProvider``. interfaces: one rail each, such as ``["eth0", "eth1"]``; empty: one rail.
    host_lane: soft only. False: values take the network lane even when node and client share a host.
    spin_us: microseconds (0 to 10000) to poll before sleeping, while it pays.
    lease_ms: longest age of a cached descriptor, 0 to 3600000. operation_limit_ms: of one read, 1 to 600000; then its
        endpoint is closed and it ends as TIMEOUT. control_timeout_ms: of one request to Valkey, 1 to 600000.
    reader_lease_ms: 0, or up to 60000: exists() and stat() ask nodes to keep what they saw readable that long.
    cache_entries_max: descriptors kept. in_flight_max: reads posted on one link and rail at once, 1 to 4096.
    hash_threads: threads that compute checksums beside the calling one, 0 to 256.
    register_on_demand: memory that is not registered is registered for the duration of the call. False: BAD_ARG.

    Raises TypeError or ValueError for values out of range.
    """

    valkey: List[NodeAddress] = field(default_factory=lambda: [NodeAddress()])
    tenant: str = ""
    key_file: str = ""
    development: bool = False
    control: KvControl = KvControl.STANDALONE
    sentinel_primary: str = ""
    credentials: Optional[ServerCredentials] = None
    database_id: int = 0
    use_tls: bool = False
    tls: Optional[TlsConfiguration] = None
    node_use_tls: bool = False
    node_tls: Optional[TlsConfiguration] = None
    provider: Any = field(default_factory=RdmaProvider.Soft)
    interfaces: Sequence[str] = ()
    host_lane: bool = True
    spin_us: int = 50
    lease_ms: int = 10_000
    operation_limit_ms: int = 5_000
    control_timeout_ms: int = 1_000
    reader_lease_ms: int = 0
    cache_entries_max: int = 65_536
    in_flight_max: int = 64
    hash_threads: int = 0
    register_on_demand: bool = True

    def __post_init__(self) -> None:
        if type(self.provider) not in _PROVIDERS:
            raise TypeError(f"provider must be RdmaProvider.Soft(), Tcp(), EfaDirect() or Verbs(), not {self.provider!r}")
        if not isinstance(self.control, KvControl):
            raise TypeError("control must be a KvControl")
        if not self.valkey or not all(isinstance(one, NodeAddress) for one in self.valkey):
            raise TypeError("valkey must be a list of at least one NodeAddress")
        for name, least, greatest in _RANGES:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
                raise ValueError(f"{name} must be a number from {least} to {greatest}")

    def _options(self) -> Dict[str, Any]:
        """The fields of the C++ options, by name."""
        out: Dict[str, Any] = {
            "control": self.control.value,
            "valkey": [(address.host, address.port) for address in self.valkey],
            "sentinel_primary": self.sentinel_primary,
            "username": (self.credentials.username or "") if self.credentials else "",
            "password": self.credentials.password if self.credentials else "",
            "database": self.database_id,
            "tenant": self.tenant,
            "key_file": self.key_file,
            "development": self.development,
            "provider": _PROVIDERS[type(self.provider)],
            "interfaces": list(self.interfaces),
            "host_lane": self.host_lane,
            "register_on_demand": self.register_on_demand,
        }
        for name, _, _ in _RANGES:
            if name != "database_id":
                out[name] = getattr(self, name)
        for prefix, enabled, given in (("tls", self.use_tls, self.tls), ("node_tls", self.node_use_tls, self.node_tls)):
            tls = given or TlsConfiguration()
            out[prefix] = enabled
            for name in ("ca_file", "certificate_file", "key_file", "server_name", "verify_peer"):
                out[f"{prefix}_{name}"] = getattr(tls, name)
        return out


class KvMemory:
    """Registered memory. Made by ``KvClient.register_memory`` and ``register_address``.

    The buffer is neither copied nor freed; it is kept alive until the registration has ended: after ``close()`` (or the
    last reference) and the last call that uses it. Use it as a context manager.
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
        if not isinstance(offset, int) or not (length is None or isinstance(length, int)):
            raise TypeError("offset and length must be integers")
        if not 0 <= offset <= self.size or (length is not None and not 0 <= length <= self.size - offset):
            raise ValueError(f"the window does not lie in the memory ({self.size} bytes)")
        return KvWindow(self, offset, self.size - offset if length is None else length)

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
        self.config = config
        self._core = _kv.Client(config._options())
        _live.add(self)

    # --- memory ---

    def register_memory(self, memory: Any) -> KvMemory:
        """Registers a writable, C-contiguous buffer for reads into it and puts from it.

        RdmaError: empty, overlaps registered memory, or the provider refuses. Peers can read it while it is registered
        and a put was made from it; no peer can ever write to it.
        """
        return KvMemory(self._core.register(_buffer(memory)), self)

    def register_address(self, address: int, size: int, owner: Any = None) -> KvMemory:
        """Registers ``size`` bytes at ``address``, for memory that offers no buffer. ``owner`` is kept alive until the
        registration has ended; without one the caller keeps the memory mapped that long."""
        if address <= 0 or size <= 0:
            raise ValueError("address and size must be positive")
        return KvMemory(self._core.register_address(address, size, owner), self)

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

        progress(done, total): called from this thread a few times a second. It must not call a client (RuntimeError); what
        it raises is raised when the batch is over.
        """
        lines = []
        for item in requests:
            key, dest, mode, least = KvGet(*item)
            if not 0 <= least < 1 << 32:
                raise ValueError("min_revision must be from 0 to 2**32 - 1")
            lines.append((_key(key), *_target(dest), int(KvReadMode(mode)), least))
        return _results(self._core.mget(lines, progress))

    def mput(self, requests: Iterable[Union[KvPut, Tuple[Any, ...]]], progress: Optional[Progress] = None) -> List[KvResult]:
        """As mget, for KvPut."""
        lines = []
        for item in requests:
            key, source, mode, expected, push = KvPut(*item)
            if not 0 <= expected < 1 << 64:
                raise ValueError("expected_version must be from 0 to 2**64 - 1")
            lines.append((_key(key), *_target(source), int(KvPutMode(mode)), expected, bool(push)))
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

    def exists(self, keys: Union[Key, Iterable[Key]], progress: Optional[Progress] = None) -> Union[bool, List[bool]]:
        """Whether a read would be allowed now: a bool for one key, a list for several. No payload moves."""
        if isinstance(keys, (str, bytes)):
            return bool(self._core.exists([_key(keys)], progress)[0])
        return self._core.exists([_key(key) for key in keys], progress)

    def stat(self, key: Key) -> KvResult:
        """Length in bytes and version. No payload moves."""
        return _result(self._core.stat(_key(key)))

    def delete(self, key: Key, version: Optional[int] = None) -> KvResult:
        """Deletes the value, whatever its version or only this one. MISS: there was none. A reader that has resolved the
        key before may read the old, right bytes until its lease ends."""
        return _result(self._core.remove(_key(key), version))

    def write_group(self, group: str, keys: Iterable[Key], version: int = 1) -> KvGroup:
        """Signs the descriptors of ``keys``, in order, under one name, so that one request resolves the chain."""
        return _group(self._core.write_group(group, [_key(key) for key in keys], version))

    def read_group(self, group: str) -> KvGroup:
        """Resolves a group; reads of its keys then need no request to Valkey within ``lease_ms``."""
        return _group(self._core.read_group(group))

    # --- for operators ---

    def nodes(self) -> List[KvNode]:
        """Data nodes with a live record. ConnectionError: Valkey does not answer."""
        return [KvNode(*node) for node in self._core.nodes()]

    def node_statistics(self, node: int) -> Tuple[KvStatus, Dict[str, int]]:
        """The counters of one node; empty unless OK."""
        status, counters = self._core.node_statistics(node)
        return KvStatus(status), counters

    def rotate(self, node: int, arena: Optional[int] = None) -> KvStatus:
        """Has the node take back the memory of one arena, or of all of this tenant's; returns when it has begun."""
        return KvStatus(self._core.rotate(node, arena))

    def drain(self, node: int) -> KvStatus:
        """The node takes no more values, moves hot ones to others, and leaves."""
        return KvStatus(self._core.drain(node))

    def reload_keys(self) -> None:
        """Reads the key file again: new secrets are added, those that are gone are dropped."""
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
    import torch
    return memory.detach().reshape(-1).view(torch.uint8).numpy()


def _target(memory: Any) -> Tuple[Any, int, Optional[int]]:
    if isinstance(memory, KvWindow):
        return memory.memory._core, memory.offset, memory.length
    if isinstance(memory, KvMemory):
        return memory._core, 0, None
    return _buffer(memory), 0, None
