"""The synchronous client: large values straight between a Valkey server and memory of this process.

Threads: every method may be called from any thread; the GIL is released while a call waits. Closing a client from another
thread is the only way to end a transfer; Ctrl-C is noticed, said on stderr, and raised when the transfer is over, since
the memory stays exposed until the server has answered.
"""
import atexit
import weakref
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from . import _client
from .config import (ClientConfiguration, ClusterClientConfiguration, RdmaConfiguration, RdmaProvider, RdmaSetChecksum,
                     _PROVIDERS)
from .errors import ClosingError, RdmaError, RequestError

__all__ = ["Client", "ClusterClient", "Batch", "BlobInfo", "RdmaRegion", "RdmaWindow", "RdmaReadReceipt", "rdma_available",
           "rdma_usable", "rdma_unusable_reason", "rdma_checksum"]

Encodable = Union[str, bytes, bytearray, memoryview, int]
Checksum = Union[None, int, RdmaSetChecksum.Skip, RdmaSetChecksum.Compute, RdmaSetChecksum.Known]


def rdma_available() -> bool:
    """Whether this build has RDMA support."""
    return _client.rdma_available()


def rdma_usable(provider: Optional[object] = None) -> bool:
    """Whether libfabric loads here and is at least 2.4 and below 3; this call loads it.

    With a provider: whether that one can serve. ``RdmaProvider.Soft()`` always can, and loads nothing.
    """
    return _usability(provider)[0]


def rdma_unusable_reason(provider: Optional[object] = None) -> str:
    """Why ``rdma_usable(provider)`` is false; empty when it is true."""
    return _usability(provider)[2]


def _usability(provider: Optional[object]) -> tuple:
    if provider is None:
        return _client.rdma_usable(None)
    if type(provider) not in _PROVIDERS:
        raise TypeError("provider must be RdmaProvider.Soft(), Tcp(), EfaDirect() or Verbs()")
    return _client.rdma_usable(_PROVIDERS[type(provider)])


def rdma_checksum(data: Any) -> int:
    """CRC-32C (Castagnoli) of a contiguous buffer, 0 to 2**32 - 1, as the server stores it. Releases the GIL."""
    return _client.rdma_checksum(data)


@dataclass(frozen=True)
class RdmaReadReceipt:
    """What ``rdma_get`` delivered.

    bytes_written: length of the value in bytes, from the start of the (first) window.
    checksum: CRC-32C of those bytes, compared with what landed unless ``verify`` is off.
    """

    bytes_written: int
    checksum: int


@dataclass(frozen=True)
class BlobInfo:
    """length in bytes, CRC-32C, and "dram" or "disk"."""

    length: int
    checksum: int
    tier: str


class RdmaRegion:
    """A registered buffer: Open, Busy with one transfer, or Closed for good. Made by ``Client.register_rdma_region``.

    The buffer is neither copied nor freed; it is kept alive until the region closes. Use it as a context manager or
    ``close()`` it; dropping the last reference closes it too, after the transfer that uses it.
    When ``closed`` is true, no later byte appears in the memory. A closed region stays closed; register the memory again.
    """

    __slots__ = ("_core", "_client", "__weakref__")

    def __init__(self, core: "_client.Region", owner: "Client"):
        self._core = core
        self._client = owner

    @property
    def capacity(self) -> int:
        """Bytes registered."""
        return self._core.capacity

    @property
    def closed(self) -> bool:
        """True once nothing can touch the memory through this region any more."""
        return self._core.closed

    def window(self, offset: int = 0, length: Optional[int] = None) -> "RdmaWindow":
        """``length`` bytes (to the end when None) from byte ``offset``. Past the end or closed: RdmaError."""
        if not isinstance(offset, int) or not (length is None or isinstance(length, int)):
            raise TypeError("offset and length must be integers")
        if offset < 0 or (length is not None and length < 0):
            raise RdmaError("a window's offset and length must not be negative")
        if offset > self.capacity or (length is not None and length > self.capacity - offset):
            raise RdmaError(f"the window runs past the end of the region ({self.capacity} bytes)")
        return RdmaWindow(self, self._core.window(offset, length))

    def memoryview(self) -> memoryview:
        """The whole region as writable bytes. The view keeps the buffer alive. Closed: RdmaError."""
        return memoryview(self._core.memory())

    def close(self) -> None:
        """Ends remote access and lets the buffer go. Idempotent. While a transfer uses the region: RdmaError."""
        self._core.close()

    def __enter__(self) -> "RdmaRegion":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RdmaRegion {self.capacity} bytes, {'closed' if self.closed else 'open'}>"


class RdmaWindow:
    """A byte range inside one region. It outlives the region but does not revive it. Made by ``RdmaRegion.window``."""

    __slots__ = ("_region", "_core")

    def __init__(self, region: RdmaRegion, core: "_client.Window"):
        self._region = region
        self._core = core

    @property
    def region(self) -> RdmaRegion:
        """The region the window lies in."""
        return self._region

    @property
    def offset(self) -> int:
        """First byte, from the start of the region."""
        return self._core.offset

    @property
    def length(self) -> int:
        """Bytes."""
        return self._core.length

    def memoryview(self) -> memoryview:
        """The window as writable bytes. Closed region: RdmaError."""
        return self._region.memoryview()[self.offset:self.offset + self.length]

    def __repr__(self) -> str:
        return f"<RdmaWindow {self.length} bytes at {self.offset}>"


class Batch:
    """Commands that are sent together. ``is_atomic`` wraps them in MULTI and EXEC."""

    def __init__(self, is_atomic: bool = False):
        self.is_atomic = is_atomic
        self.commands: List[List[Encodable]] = []

    def custom_command(self, command_args: Sequence[Encodable]) -> "Batch":
        """Adds one command; returns the batch. BLOB.RDMA_* is refused when the batch is executed."""
        self.commands.append(list(command_args))
        return self


_live: "weakref.WeakSet[Client]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_live):
        client.close()


class Client:
    """A client of one standalone server; see ``ClusterClient`` for a cluster.

    ::

        with Client.create(ClientConfiguration(rdma=RdmaConfiguration())) as client:
            buffer = bytearray(64 << 20)
            with client.register_rdma_region(buffer) as region:
                client.rdma_set("weights", region.window(0, 4096))
                receipt = client.rdma_get("weights", region.window())

    Registering pins memory and is costly: register once, make windows often.
    Raises: ``ConnectionError`` and ``TimeoutError`` for the connection, ``ClosingError`` once closed or in a forked child,
    ``RequestError`` for what the server refuses, ``RdmaError`` for transfers.
    """

    _configuration_type: type = ClientConfiguration

    rdma_available = staticmethod(rdma_available)
    rdma_usable = staticmethod(rdma_usable)
    rdma_checksum = staticmethod(rdma_checksum)

    def __init__(self, config: Optional[ClientConfiguration] = None):
        """Connects at once. ConfigurationError: options exclude each other or cannot be met; ConnectionError: no server."""
        config = self._configuration_type() if config is None else config
        wanted = self._configuration_type
        if not isinstance(config, ClientConfiguration) or config._cluster is not wanted._cluster:
            raise TypeError(f"config must be a {wanted.__name__}")
        self.config = config
        self._core = _client.Client(config._options())
        _live.add(self)

    @classmethod
    def create(cls, config: Optional[ClientConfiguration] = None) -> "Client":
        """As the constructor."""
        return cls(config)

    # --- registered memory and transfers ---

    def register_rdma_region(self, memory: Any) -> RdmaRegion:
        """Registers any writable, C-contiguous buffer (bytearray, mmap, NumPy array, CPU tensor's ``numpy()``).

        Wide elements count in bytes. TypeError: no such buffer. RdmaError: empty, or RDMA is not configured.
        """
        return RdmaRegion(self._core.register(memory), self)

    def rdma_get(self, key: Encodable, window: Union[RdmaWindow, Sequence[RdmaWindow]]) -> Optional[RdmaReadReceipt]:
        """Reads the value into the window; None when there is no such key, and the window is then untouched.

        A list of up to 256 windows is filled in order. There is no timeout. A value larger than the window is refused by
        the server before a byte is written (RdmaError, region open). ConnectionError: the connection was lost on the way,
        and the regions are closed. Bytes of the window after the value's end are never touched.
        """
        reply = self._core.rdma_get(_word(key), self._windows(window))
        return None if reply is None else RdmaReadReceipt(*reply)

    def rdma_set(self, key: Encodable, window: Union[RdmaWindow, Sequence[RdmaWindow]], checksum: Checksum = None) -> None:
        """Stores the bytes of the window (of a list of windows, in order) under the key.

        checksum: a CRC-32C to be verified by the server (an int, or an ``RdmaSetChecksum``); on a difference nothing is
        stored and RdmaError is raised. ConnectionError: the connection was lost; the value may or may not be stored.
        """
        windows = self._windows(window)
        self._core.rdma_set(_word(key), windows, self._checksum(checksum, window))

    def _windows(self, window: Any) -> List["_client.Window"]:
        if isinstance(window, RdmaWindow):
            return [window._core]
        if isinstance(window, (list, tuple)) and all(isinstance(item, RdmaWindow) for item in window):
            return [item._core for item in window]
        if self.closed:
            raise ClosingError("the client is closed")
        raise TypeError("expected an RdmaWindow, or a list of them; make one with region.window()")

    @staticmethod
    def _checksum(checksum: Checksum, window: Any) -> Optional[int]:
        if checksum is None or isinstance(checksum, RdmaSetChecksum.Skip):
            return None
        if isinstance(checksum, RdmaSetChecksum.Compute):
            windows = [window] if isinstance(window, RdmaWindow) else window
            return _client.rdma_checksum(*[item.memoryview() for item in windows])
        value = checksum.value if isinstance(checksum, RdmaSetChecksum.Known) else checksum
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError("checksum must be an integer, an RdmaSetChecksum or None")
        if not 0 <= value < 1 << 32:
            raise ValueError("checksum must be from 0 to 2**32 - 1")
        return value

    # --- large values inside RESP ---

    def tcp_get(self, key: Encodable) -> Optional[bytes]:
        """The value through the connection itself, or None. For callers without registered memory."""
        return self._core.tcp_get(_word(key))

    def tcp_set(self, key: Encodable, value: Union[str, bytes, bytearray, memoryview]) -> None:
        """Stores the value through the connection itself."""
        self._core.tcp_set(_word(key), _word(value))

    def blob_info(self, key: Encodable) -> Optional[BlobInfo]:
        """Length, checksum and tier of a large value; None when there is no such key. Moves no payload."""
        reply = self._core.blob_info(_word(key))
        return None if reply is None else BlobInfo(*reply)

    # --- ordinary commands ---

    def custom_command(self, command_args: Sequence[Encodable]) -> Any:
        """Any command but BLOB.RDMA_* (RequestError, nothing sent).

        Bulk strings are bytes, status replies str, nil None, maps dict. An error reply raises RequestError.
        """
        return self._core.command([_word(word) for word in command_args])

    def exec(self, batch: Batch, raise_on_error: bool = True) -> Optional[List[Any]]:
        """Runs a batch. Error replies raise (the first of them), or stay in the list when ``raise_on_error`` is false.

        None: an atomic batch was not executed because a watched key had changed.
        """
        commands = [[_word(word) for word in command] for command in batch.commands]
        replies = self._core.transaction(commands) if batch.is_atomic else self._core.pipeline(commands)
        if replies is not None and raise_on_error:
            for reply in replies:
                if isinstance(reply, RequestError):
                    raise reply
        return replies

    def ping(self) -> bytes:
        """b"PONG"."""
        reply = self.custom_command(["PING"])
        return reply.encode() if isinstance(reply, str) else reply

    def get(self, key: Encodable) -> Optional[bytes]:
        """A plain string value, or None."""
        return self.custom_command(["GET", key])

    def set(self, key: Encodable, value: Encodable) -> str:
        """Stores a plain string value; "OK"."""
        return self.custom_command(["SET", key, value])

    def delete(self, keys: Iterable[Encodable]) -> int:
        """Deletes keys of any type; how many there were."""
        return self.custom_command(["DEL", *keys])

    # --- life ---

    @property
    def closed(self) -> bool:
        """True once ``close()`` was called."""
        return self._core.closed

    @property
    def statistics(self) -> Dict[str, int]:
        """Counters: handshakes, transfers, verified_on_landing, verified_afterwards, connections_opened."""
        return self._core.statistics()

    def close(self) -> None:
        """Cuts the server off from every region of this client, then wakes waiters with ClosingError. Idempotent.

        Bytes that have landed stay, so a window under transfer may mix old and new.
        """
        self._core.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ClusterClient(Client):
    """A client of a cluster: commands and transfers go to the primary of the key's slot, redirections are followed."""

    _configuration_type = ClusterClientConfiguration


def _word(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        raise TypeError("a command word must be a string, bytes or a number")
    if isinstance(value, (int, float)):
        return repr(value).encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError("a command word must be a string, bytes or a number")


# The names of the published synchronous client, for programs written for it.
GlideClient = Client
GlideClusterClient = ClusterClient
GlideClientConfiguration = ClientConfiguration
GlideClusterClientConfiguration = ClusterClientConfiguration
__all__ += ["GlideClient", "GlideClusterClient", "GlideClientConfiguration", "GlideClusterClientConfiguration"]
