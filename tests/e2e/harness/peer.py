"""A raw fabric peer: a RESP connection with a target endpoint and registered regions of its own."""
import threading
from typing import Any, List, Optional, Tuple

from .pattern import SENTINEL
from .resp import Connection, Word
from .server import Server

Triple = Tuple[Word, Word, Word]


class Lane:
    """One way for bytes to travel. Domains are opened once per lane and shared by all peers of a test run."""

    def __init__(self, name: str, opener):
        self.name = name
        self._opener = opener
        self._domain = None
        self._opening = threading.Lock()

    @property
    def domain(self):
        with self._opening:  # clients of one test may be the first at once
            if self._domain is None:
                self._domain = self._opener()
            return self._domain

    @property
    def emulated(self) -> bool:
        return self.name == "emulated"


def _soft(**options):
    from farlift import _fabric
    return _fabric.open_soft(**options)


def _ofi():
    from farlift import _fabric
    return _fabric.open_ofi(interface="lo")


LANES = {
    "soft-host": Lane("soft-host", lambda: _soft()),
    "soft-remote": Lane("soft-remote", lambda: _soft(host_lane=False)),
    "soft-virtual": Lane("soft-virtual", lambda: _soft(virtual_addressing=True)),
    "emulated": Lane("emulated", _ofi),
}


class Region:
    """Registered memory that starts out as sentinel bytes (or as `content`)."""

    def __init__(self, domain, size: int = 0, content: Optional[bytes] = None, access: str = "rw"):
        self.memory = bytearray(content) if content is not None else bytearray([SENTINEL]) * size
        self.registration = domain.register(self.memory, access)

    def __len__(self) -> int:
        return len(self.memory)

    def triple(self, offset: int = 0, length: Optional[int] = None) -> Triple:
        """rkey, addr, len as the wire wants them; the range may lie past the end, for tests that want that."""
        length = len(self.memory) - offset if length is None else length
        return self.registration.key, self.registration.addr + offset, length

    def reset(self) -> None:
        self.memory[:] = bytes([SENTINEL]) * len(self.memory)

    def untouched(self, start: int = 0, end: Optional[int] = None) -> bool:
        part = bytes(memoryview(self.memory)[start:end])
        return part.count(SENTINEL) == len(part)

    def close(self) -> None:
        self.registration.close()


class Peer:
    """A connection that said BLOB.RDMA_HELLO (unless told not to) and the endpoint it named."""

    def __init__(self, server: Server, lane: Lane, resp: int = 2, hello: bool = True, timeout: float = 60.0,
                 own_thread: bool = True):
        self.server, self.lane = server, lane
        self.connection: Connection = server.connect(resp=resp, timeout=timeout)
        self.target = lane.domain.open_target(own_thread=own_thread)
        self.regions: List[Region] = []
        self.services: List[bytes] = []
        if hello:
            self.hello()

    @property
    def address_hex(self) -> str:
        return self.target.address.hex()

    def hello(self) -> None:
        reply = self.connection.ok("BLOB.RDMA_HELLO", self.address_hex)
        self.services = [bytes.fromhex(word.decode()) for word in reply]
        for address in self.services:
            if len(address) == len(self.target.address):
                self.target.add_peer(address)

    def region(self, size: int = 0, content: Optional[bytes] = None, access: str = "rw") -> Region:
        region = Region(self.lane.domain, size, content, access)
        self.regions.append(region)
        return region

    def get(self, key: Word, *triples: Triple) -> Any:
        return self.connection.call("BLOB.RDMA_GET", key, *[word for triple in triples for word in triple])

    def send_get(self, key: Word, *triples: Triple) -> None:
        self.connection.send("BLOB.RDMA_GET", key, *[word for triple in triples for word in triple])

    def _set_words(self, key: Word, length: Word, triples, crc: Optional[Word]) -> List[Word]:
        option: List[Word] = [] if crc is None else ["CRC", crc]
        return ["BLOB.RDMA_SET", key, length, *option, *[word for triple in triples for word in triple]]

    def set(self, key: Word, length: Word, *triples: Triple, crc: Optional[Word] = None) -> Any:
        return self.connection.call(*self._set_words(key, length, triples, crc))

    def send_set(self, key: Word, length: Word, *triples: Triple, crc: Optional[Word] = None) -> None:
        self.connection.send(*self._set_words(key, length, triples, crc))

    def store(self, key: Word, content: bytes) -> None:
        """RDMA_SET of the content from a region of its own; anything but OK fails the test."""
        region = self.region(content=content)
        reply = self.set(key, len(content), region.triple())
        assert reply == "OK", reply
        self.forget(region)

    def fetch(self, key: Word, length: int) -> bytes:
        """RDMA_GET into a region of its own of that size; the reply and the landed bytes must agree."""
        from .pattern import crc32c
        region = self.region(length)
        reply = self.get(key, region.triple())
        assert reply == [length, crc32c(region.memory)], reply
        self.forget(region)
        return bytes(region.memory)

    def forget(self, region: Region) -> None:
        region.close()
        self.regions.remove(region)

    def cut(self) -> None:
        """Leaves as a crash would: RESP connection gone, then the endpoint, then the registrations."""
        self.connection.close()
        self.close()

    def close(self) -> None:
        self.target.close()
        for region in self.regions:
            region.close()
        self.regions.clear()
        self.connection.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
