"""What the one-sided cache says and is told: statuses, requests, results, configuration. Import them from ``farlift``."""
import operator
import os
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from .config import AnyProvider, NodeAddress, RdmaProvider, ServerCredentials, TlsConfiguration, _PROVIDERS
from .errors import KvError

__all__ = ["KvConfiguration", "KvControl", "KvStatus", "KvReadMode", "KvPutMode", "KvGet", "KvPut", "KvResult", "KvGroup",
           "KvGroupEntry", "KvNode"]

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
    longest value taken. It must not overlap that of another read of the batch, or of a call under way: BAD_ARG, and the other
    one goes on. min_revision: 0 to 2**32 - 1; an older value counts as a MISS."""

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

_KINDS = (("credentials", ServerCredentials), ("tls", TlsConfiguration), ("node_tls", TlsConfiguration))


def number(name: str, value: Any, least: int, greatest: int) -> int:
    """``value`` as an int. TypeError: it is not a whole number; ValueError: out of range."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if not least <= whole <= greatest:
        raise ValueError(f"{name} must be a number from {least} to {greatest}")
    return whole


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

    Raises TypeError for values of another type, ValueError for what is not a number in its range. Checked again when a client
    is made.
    """

    valkey: List[NodeAddress] = field(default_factory=lambda: [NodeAddress()])
    tenant: str = ""
    key_file: Union[str, "os.PathLike[str]"] = ""
    development: bool = False
    control: KvControl = KvControl.STANDALONE
    sentinel_primary: str = ""
    credentials: Optional[ServerCredentials] = None
    database_id: int = 0
    use_tls: bool = False
    tls: Optional[TlsConfiguration] = None
    node_use_tls: bool = False
    node_tls: Optional[TlsConfiguration] = None
    provider: AnyProvider = field(default_factory=RdmaProvider.Soft)
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
        for name, kind in _KINDS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")
        for name in ("tenant", "sentinel_primary"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a string")
        if not isinstance(self.key_file, (str, os.PathLike)):
            raise TypeError("key_file must be a path")
        for name in ("development", "use_tls", "node_use_tls", "host_lane", "register_on_demand"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False")
        if isinstance(self.interfaces, str) or not all(isinstance(one, str) for one in self.interfaces):
            raise TypeError("interfaces must be a list of names")
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
            "key_file": os.fspath(self.key_file),
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
